#!/bin/bash
# Measures a training step of the example's network beside PyTorch's: see "Training" in docs/performance.md. Builds what
# is missing. The first time it also installs PyTorch from PyPI, for itself alone, into .cache/torch: a download of 3 GB
# that takes 6 GB there. Without PyTorch it measures the rest and says why.
#
#   scripts/training_bench.sh [--quick] [--json=FILE] [--python=PATH] [--rounds=N] [--steps=N]
#
#   --quick         fewer rounds
#   --json=FILE     the results for programs
#   --python=PATH   an interpreter that has PyTorch, instead of installing one
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo
# shellcheck source=scripts/bazel.sh
source "$repo/scripts/bazel.sh"

readonly torch=torch==2.15.0
readonly environment=$repo/.cache/torch
readonly disk_mb=10000

python=
arguments=()
for argument in "$@"; do
  case $argument in
    --help) print_head && exit ;;
    --quick) arguments+=(--rounds=21) ;;
    --python=*) python=${argument#--python=} ;;
    --json=* | --rounds=* | --steps=*) arguments+=("$argument") ;;
    *) echo "training_bench: no flag $argument; see scripts/training_bench.sh --help" >&2 && exit 2 ;;
  esac
done

# Sets $python, or else $why_not.
install_torch() {
  local free_mb
  if "$environment/bin/python" -c "import torch" 2>/dev/null; then
    python=$environment/bin/python
    return
  fi
  rm -rf "$environment"
  mkdir -p "$environment"
  free_mb=$(df --output=avail --block-size=1M "$environment" | tail -n 1)
  if ((free_mb < disk_mb)); then
    why_not="PyTorch needs $disk_mb MB of disk for its installation, $free_mb MB are free"
    return
  fi
  echo "training_bench: installing $torch into .cache/torch; this takes minutes" >&2
  if ! /usr/bin/python3 -m venv "$environment" >&2; then
    why_not="no virtual environment for PyTorch; install python3-venv"
  elif ! "$environment/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check "$torch" >&2; then
    why_not="pip could not install $torch, see its message"
  else
    python=$environment/bin/python
    return
  fi
  rm -rf "$environment"
}

"$repo/scripts/setup.sh" --packages
run_bazel build --show_result=0 "--ui_event_filters=-info,-stdout" --noshow_loading_progress //bench:training_step || {
  echo "training_bench: the build failed; see above. \`bazel build //bench:training_step\` shows it again." >&2
  exit 1
}
binaries=$(bazel_bin)/bench
# An idle Bazel server takes memory and some time.
stop_bazel

why_not=
[[ $python ]] || install_torch
python3 "$repo/bench/training_bench.py" --training_step="$binaries/training_step" --python="$python" \
  --why_no_python="$why_not" ${arguments[@]+"${arguments[@]}"}
