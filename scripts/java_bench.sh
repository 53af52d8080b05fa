#!/bin/bash
# Measures what the boundary between Java and native code costs: exchanges through direct buffers beside those of the
# C++ client, in turns, within one run. docs/java.md shows what it printed.
#
#   scripts/java_bench.sh [ROUNDS]     15 if not given; about a minute
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo
# shellcheck source=scripts/bazel.sh
source "$repo/scripts/bazel.sh"

if ! [[ $# -le 1 && ${1-15} =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: scripts/java_bench.sh [ROUNDS]" >&2
  exit 2
fi
cd "$repo"
scripts/build_java.sh --natives
run_bazel build //bench:boundary_peer
run mvn --quiet --batch-mode --file client/java/pom.xml test-compile
readonly classes=client/java/target/classes:client/java/target/test-classes
# As the C++ side has them, and docs/java.md tells.
export MALLOC_ARENA_MAX=1 MALLOC_TOP_PAD_=67108864
export MALLOC_TRIM_THRESHOLD_=536870912 MALLOC_MMAP_THRESHOLD_=1073741824
java -Xmx256m -XX:MaxDirectMemorySize=512m -cp "$classes" paramd.BoundaryBench bazel-bin/bench/boundary_peer "${1:-15}"
