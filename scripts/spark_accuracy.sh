#!/bin/bash
# Compares ParamdClassifier with Spark's own classifiers, all with their defaults, on data sets of scikit-learn (which is
# installed for this alone) and MNIST; prints the tables of docs/spark.md, and fails where paramd is behind.
#
#   scripts/spark_accuracy.sh [--seeds=N] [--data=NAMES] [--mnist_rows=N] [--algorithms]
#
#   --seeds=N         seeds of each fit; default: 12
#   --data=NAMES      some of digits,iris,wine,breast_cancer; default: all
#   --mnist_rows=N    of MNIST; 0: none of it; default: 20000
#   --algorithms      every solver with every algorithm, too
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo
# shellcheck source=scripts/bazel.sh
source "$repo/scripts/bazel.sh"

for argument in "$@"; do
  case $argument in
    --seeds=* | --data=* | --mnist_rows=* | --algorithms) ;;
    --help) print_head && exit ;;
    *) echo "spark_accuracy: no flag $argument; see scripts/spark_accuracy.sh --help" >&2 && exit 2 ;;
  esac
done
cd "$repo"
readonly python=.cache/spark_accuracy

scripts/setup.sh --data
scripts/build_python.sh
if [[ ! -x $python/bin/pip ]]; then python3 -m venv "$python"; fi
readonly pip=("$python/bin/pip" --disable-pip-version-check install --quiet)
"${pip[@]}" --force-reinstall --no-deps client/python/dist/*.whl
"${pip[@]}" paramd pyspark==4.2.0 scikit-learn
export SPARK_LOCAL_IP=127.0.0.1 PYSPARK_PYTHON="$python/bin/python"
"$python/bin/python" bench/spark_accuracy.py "$@"
