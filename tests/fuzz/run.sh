#!/usr/bin/env bash
# Runs libFuzzer on each target, or on those that are named, and keeps what it finds worth keeping in tests/fuzz/corpus:
#
#   tests/fuzz/run.sh SECONDS [TARGET...]
#
# Ends with 1 at the first input that ends the process; it stays in .cache/fuzz. Needs clang-14 and libclang-rt-14-dev.
set -euo pipefail

usage() {
  sed -n '4,4p' "$0" | sed 's/^# *//' >&2
  exit 2
}

[[ ${1:-} =~ ^[1-9][0-9]*$ ]] || usage
seconds=$1
shift
cd "$(dirname "$0")/../.."
if [ $# -eq 0 ]; then
  # shellcheck disable=SC2046  # names of folders of ours
  set -- $(ls tests/fuzz/corpus)
fi
for target; do
  [ -d "tests/fuzz/corpus/$target" ] || usage
done

bazel build --config=fuzz //tests/fuzz:fuzzer </dev/null
fuzzer=$PWD/bazel-bin/tests/fuzz/fuzzer
for target; do
  work=.cache/fuzz/$target
  mkdir -p "$work/found"
  echo "== $target"
  PARAMD_FUZZ_TARGET=$target "$fuzzer" -max_total_time="$seconds" -max_len=4096 -rss_limit_mb=2048 -timeout=25 \
    -print_final_stats=1 -artifact_prefix="$work/" "$work/found" "tests/fuzz/corpus/$target" 2>"$work/log" || {
    tail -40 "$work/log" >&2
    exit 1
  }
  # Only what reaches something that nothing there does.
  before=$(find "tests/fuzz/corpus/$target" -type f | wc -l)
  PARAMD_FUZZ_TARGET=$target "$fuzzer" -merge=1 "tests/fuzz/corpus/$target" "$work/found" >>"$work/log" 2>&1
  echo "$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log" | tail -1) inputs; of the corpus' $(
    find "tests/fuzz/corpus/$target" -type f | wc -l) files $(($(find "tests/fuzz/corpus/$target" -type f | wc -l) - before)) are new"
done
