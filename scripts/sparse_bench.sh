#!/bin/bash
# Measures ParamdClassifier beside Spark's LogisticRegression on sparse text: 2^14, 2^16 and 2^18 features of some ten
# thousand files that the set-up installs: seconds, accuracy and the JVM's peak of memory.
#
#   scripts/sparse_bench.sh     some minutes
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo
# shellcheck source=scripts/bazel.sh
source "$repo/scripts/bazel.sh"

if (($# > 0)); then
  echo "usage: scripts/sparse_bench.sh" >&2
  exit 2
fi
cd "$repo"
scripts/build_java.sh --natives
run mvn --quiet --batch-mode --file client/java/pom.xml test -Dtest=SparseTextBench -Dsurefire.useFile=false
