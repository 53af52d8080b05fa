#!/bin/bash
# Measures paramd against the limits of the machine: docs/performance.md says what the columns mean. Installs and builds
# what is missing.
#
#   scripts/bench.sh [--quick] [--mode=MODE,...] [--json=FILE] [--update_docs] [...]
#
#   --quick         fewer sizes, workers and rounds: under two minutes rather than twenty
#   --mode=MODE     only this: matrix, many_workers, idle, overlap, mnist, link, training, kernels, encoding, or journal or
#                   state, on the disk of $TMPDIR
#   --json=FILE     the results for programs, but journal's and state's
#   --update_docs   writes the tables into docs/performance.md; only with all modes, and not with --quick
#
# All other flags go to the benchmark: `bazel run //bench:exchange_bench -- --help` lists them.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo
# shellcheck source=scripts/bazel.sh
source "$repo/scripts/bazel.sh"

readonly page=$repo/docs/performance.md
quick=
update_docs=
json=
# Of each program, those that are wanted.
exchange_modes=matrix,many_workers,idle,overlap,mnist,link,training
kernels=(kernels encoding)
on_disk=(journal state)
# PyTorch is not fetched unless somebody asks for it.
training=
if [[ -x $repo/.cache/torch/bin/python ]]; then training=1; fi
all_modes=1
arguments=()
for argument in "$@"; do
  case $argument in
    --help) print_head && exit ;;
    --quick) quick=1 && arguments+=(--quick) ;;
    --update_docs) update_docs=1 ;;
    --json=*) json=$(realpath --canonicalize-missing "${argument#--json=}") ;;
    --mode=*)
      all_modes=
      kernels=()
      on_disk=()
      exchange_modes=
      training=
      IFS=, read -ra modes <<<"${argument#--mode=}"
      for mode in "${modes[@]}"; do
        case $mode in
          kernels | encoding) kernels+=("$mode") ;;
          journal | state) on_disk+=("$mode") ;;
          *) exchange_modes+=${exchange_modes:+,}$mode ;;
        esac
        [[ $mode != training ]] || training=1
      done
      ;;
    -*) arguments+=("$argument") ;;
    *) echo "bench: no flag $argument; see scripts/bench.sh --help" >&2 && exit 2 ;;
  esac
done
if [[ $update_docs && ($quick || ! $all_modes) ]]; then
  echo "bench: docs/performance.md takes a full run; leave out --quick and --mode, or --update_docs" >&2
  exit 2
fi

"$repo/scripts/setup.sh" --packages
build=(build --show_result=0 "--ui_event_filters=-info,-stdout" --noshow_loading_progress)
targets=(//server:paramd //examples/mnist:mnist_worker //bench:exchange_bench //bench:kernels_bench
  //bench:encoding_bench //bench:journal_bench //bench:state_bench //examples/mnist:mnist)
if ! [[ -x $repo/bazel-bin/bench/exchange_bench ]]; then
  echo "bench: building; the first time takes minutes" >&2
fi
run_bazel "${build[@]}" "${targets[@]}" || {
  echo "bench: the build failed; see above. \`bazel build ${targets[*]}\` shows it again." >&2
  exit 1
}
binaries=$(bazel_bin)/bench
# An idle Bazel server takes memory and some time.
stop_bazel

scratch=$(mktemp -d)
# What the benchmark leaves behind when it is interrupted.
export TMPDIR=$scratch

if [[ $training ]]; then
  run "$repo/scripts/training_bench.sh" ${quick:+--quick} "--json=$scratch/training" >/dev/null
fi
if [[ $exchange_modes ]]; then
  run "$binaries/exchange_bench" "--mode=$exchange_modes" "--data=$repo/data/mnist" "--training=$scratch/training" \
    "--json=$scratch/exchange.json" ${arguments[@]+"${arguments[@]}"} >"$scratch/exchange"
  cat "$scratch/exchange"
fi
for kernel in ${kernels[@]+"${kernels[@]}"}; do
  echo
  options=(--benchmark_min_time="$([[ $quick ]] && echo 0.05 || echo 0.5)" --benchmark_color=false
    --benchmark_out_format=json "--benchmark_out=$scratch/$kernel.json")
  # Its notes on the machine go to stderr.
  if ! run "$binaries/${kernel}_bench" "${options[@]}" >"$scratch/$kernel" 2>"$scratch/notes"; then
    cat "$scratch/notes" >&2
    exit 1
  fi
  cat "$scratch/$kernel"
done
touch "$scratch/journal" "$scratch/state"
for name in ${on_disk[@]+"${on_disk[@]}"}; do
  echo
  options=("--folder=$scratch" "--rounds=$([[ $quick ]] && echo 3 || echo 9)")
  [[ $name == journal ]] || options+=("--data=$repo/data/mnist")
  # Whether it reaches what is required is in its table.
  run "$binaries/${name}_bench" "${options[@]}" >"$scratch/$name" || (($? == 1))
  cat "$scratch/$name"
done

if [[ $json ]]; then
  python3 - "$scratch" "$json" <<'PY'
import json
import os
import sys

scratch, out = sys.argv[1:]
exchange = f"{scratch}/exchange.json"
results = json.load(open(exchange)) if os.path.exists(exchange) else {}
for name in ("kernels", "encoding"):
    if os.path.exists(f"{scratch}/{name}.json"):
        results[name] = json.load(open(f"{scratch}/{name}.json"))["benchmarks"]
with open(out, "w") as file:
    json.dump(results, file, indent=2)
    file.write("\n")
PY
fi

if [[ $update_docs ]]; then
  python3 - "$page" "$scratch/exchange" "$scratch/journal" "$scratch/state" "$scratch/kernels" "$scratch/encoding" <<'PY'
import re
import sys

page, exchange, journal, state, *kernels = sys.argv[1:]
tables = "\n".join(open(name).read() for name in (exchange, journal, state))
for kernel in kernels:
    tables += "\n```text\n" + open(kernel).read() + "```\n"
begin, end = "<!-- table:begin -->", "<!-- table:end -->"
text = open(page).read()
text, replaced = re.subn(f"{begin}.*{end}", lambda _: f"{begin}\n{tables}{end}", text, flags=re.S)
if replaced != 1:
    sys.exit(f"bench: {page} must hold {begin} and {end} once")
open(page, "w").write(text)
PY
fi
