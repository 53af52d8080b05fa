#!/bin/bash
# Compares the exchanges of two builds in one run: docs/performance.md says what the columns mean.
#
#   scripts/compare_bench.sh [--rounds=N] [--bytes=N,...] [--json=FILE] OLD [NEW]
#
#   OLD, NEW      folders with the programs exchange_bench and paramd of a build; or its bazel-bin. NEW is this work
#                 tree, which is then built, unless it is given
#   --rounds=N    how often each build is measured, in turns; default: 7
#   --bytes=N,... sizes of the model; default: 4000,4000000,40000000
#   --json=FILE   the results for programs
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo
# shellcheck source=scripts/bazel.sh
source "$repo/scripts/bazel.sh"

rounds=7
bytes=4000,4000000,40000000
json=
folders=()
for argument in "$@"; do
  case $argument in
    --rounds=*) rounds=${argument#--rounds=} ;;
    --bytes=*) bytes=${argument#--bytes=} ;;
    --json=*) json=$(realpath --canonicalize-missing "${argument#--json=}") ;;
    --help) print_head && exit ;;
    -*) echo "compare_bench: no flag $argument; see scripts/compare_bench.sh --help" >&2 && exit 2 ;;
    *) folders+=("$argument") ;;
  esac
done
if ((${#folders[@]} < 1 || ${#folders[@]} > 2)); then
  echo "usage: scripts/compare_bench.sh [--rounds=N] [--bytes=N,...] [--json=FILE] OLD [NEW]" >&2
  exit 2
fi
if ((${#folders[@]} == 1)); then
  "$repo/scripts/setup.sh" --packages
  run_bazel build --show_result=0 "--ui_event_filters=-info,-stdout" //server:paramd //bench:exchange_bench
  folders+=("$(bazel_bin)")
  # An idle Bazel server takes memory and some time.
  stop_bazel
fi
# Each build's exchange_bench and paramd.
programs=()
for folder in "${folders[@]}"; do
  for program in bench/exchange_bench server/paramd; do
    found=$folder/$program
    [[ -x $found ]] || found=$folder/${program##*/}
    if ! [[ -x $found ]]; then
      echo "compare_bench: there is no ${program##*/} in $folder; build //$(dirname "$program"):${program##*/} and copy" \
        "it there" >&2
      exit 2
    fi
    programs+=("$(realpath "$found")")
  done
done

scratch=$(mktemp -d)
# What a benchmark leaves behind when it is interrupted.
export TMPDIR=$scratch
# In a network of its own with cubic, Linux' default: BBR, which some hosts prefer, sends at a pace that it measured
# before, so that on loopback a row would depend on those before it.
network=(unshare --net)
((EUID == 0)) || network+=(--map-root-user)
network+=(sh -c 'ip link set lo up && echo cubic > /proc/sys/net/ipv4/tcp_congestion_control && exec "$@"' sh)
if ! "${network[@]}" true 2> "$scratch/network"; then
  echo "compare_bench: no network namespace ($(tail -1 "$scratch/network")); TCP goes as this host is set" >&2
  network=()
fi
"${network[@]}" python3 - "$scratch" "$rounds" "$bytes" "$json" "${programs[@]}" <<'PY'
import json
import os
import shlex
import statistics
import subprocess
import sys

scratch, rounds, sizes, out, *programs = sys.argv[1:]
builds = {"old": programs[:2], "new": programs[2:]}
cpus = sorted(os.sched_getaffinity(0))
# More is bound by memory, and shared by more threads.
small_bytes = 100000


def pinned(build):
    """Daemon and workers on different halves of the processors: how long a small exchange takes depends most on where
    the system happens to put the two."""
    bench, daemon = builds[build]
    half = len(cpus) // 2
    if half == 0:
        return [bench, f"--paramd={daemon}"]
    few, others = (",".join(map(str, part)) for part in (cpus[:half], cpus[half:]))
    wrapper = f"{scratch}/{build}_paramd"
    with open(wrapper, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec taskset --cpu-list {few} {shlex.quote(daemon)} "$@"\n')
    os.chmod(wrapper, 0o755)
    return ["taskset", "--cpu-list", others, bench, f"--paramd={wrapper}"]


def measure(build, small, *what):
    """{row: {column: value}} of one run."""
    bench, daemon = builds[build]
    command = pinned(build) if small else [bench, f"--paramd={daemon}"]
    report = f"{scratch}/{build}.json"
    run = subprocess.run([*command, "--quick", "--workers=1", *what, f"--json={report}"], stdout=subprocess.DEVNULL)
    if run.returncode != 0:
        print(f"compare_bench: {bench} {' '.join(what)} failed; this round goes without it", file=sys.stderr)
        return {}
    with open(report, encoding="utf-8") as file:
        results = json.load(file)
    rows = {}
    for row in results["rows"]:
        key = f"{row['operation']} {row['bytes']:,} {row['transport']} {row['wire']}"
        if row["gb_per_s"] is not None and not row["transport"].startswith(("memcpy", "unary")):
            rows[key] = {"rate": row["gb_per_s"], "cpu": row["server_cpu_s_per_gb"]}
    for row in results["many_workers"]:
        if row["exchanges_per_s"] is not None:
            rows[f"exchange 4,000 {row['transport']}, {row['workers']} workers"] = {"rate": row["exchanges_per_s"]}
    for transport in {row["transport"] for row in results["many_workers"]}:
        few, many = (rows.get(f"exchange 4,000 {transport}, {n} workers") for n in (8, 64))
        if few and many:
            rows[f"exchange 4,000 {transport}, 64 workers over 8"] = {"rate": many["rate"] / few["rate"]}
    return rows


parts = [(int(size) < small_bytes, "--mode=matrix", f"--bytes={size}") for size in sizes.split(",")]
parts.append((True, "--mode=many_workers"))
runs = {"old": [], "new": []}
for i in range(int(rounds)):
    print(f"round {i + 1} of {rounds}", file=sys.stderr)
    for build in builds:
        runs[build].append({})
    for part in parts:
        # In turns: whatever slows the machine down for a while slows down both.
        for build in ("old", "new") if i % 2 == 0 else ("new", "old"):
            runs[build][-1].update(measure(build, *part))


def compare(key, column, best):
    """Medians of the two, and of the ratios of those of a round, with their quartiles; and the ratio of the best."""
    pairs = [(o[key][column], n[key][column]) for o, n in zip(runs["old"], runs["new"])
             if key in o and key in n and o[key].get(column) and n[key].get(column)]
    if not pairs:
        return None
    ratios = sorted(new / old for old, new in pairs)
    quarters = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return {"old": statistics.median(o for o, _ in pairs), "new": statistics.median(n for _, n in pairs),
            "ratio": statistics.median(ratios), "low": quarters[0], "high": quarters[2],
            "best_ratio": best(n for _, n in pairs) / best(o for o, _ in pairs)}


table = [{"row": key, "baseline": "raw-" in key, "rate": compare(key, "rate", max),
          "cpu": compare(key, "cpu", min)} for key in dict.fromkeys(key for run in runs["new"] for key in run)]
# The baselines are the same code in both builds: what they differ by is the machine's noise.
table.sort(key=lambda row: row["baseline"])

print("| what | old | new | new/old | quartiles | best, new/old | server CPU, new/old | least |\n|---|---|---|---|---|---|---|---|")
for row in table:
    rate, cpu = row["rate"], row["cpu"]
    if rate is None:
        continue
    cpu = f"{cpu['ratio']:.2f} | {cpu['best_ratio']:.2f}" if cpu and not row["baseline"] else "– | –"
    print(f"| {row['row']} | {rate['old']:.3g} | {rate['new']:.3g} | {rate['ratio']:.2f} | "
          f"{rate['low']:.2f} to {rate['high']:.2f} | {rate['best_ratio']:.2f} | {cpu} |")
if out:
    with open(out, "w", encoding="utf-8") as file:
        json.dump(table, file, indent=2)
        file.write("\n")
PY
