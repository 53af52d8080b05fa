#!/bin/bash
# Runs all tests, or the groups named, and closes with "N passed, N failed". Without a group it also installs what is
# missing.
#
#   scripts/test.sh [GROUP...]
#
#   unit         every test that runs in one process
#   integration  daemons, workers and tools as real processes
#   static       clang's thread-safety analysis, formatting, and the directions between folders
#   tsan         the tests tagged `tsan`, under ThreadSanitizer
#   asan         every test that is not tagged `noasan`, under AddressSanitizer and UndefinedBehaviorSanitizer
#   deploy       the recipes of deploy/, as far as they run without an engine for containers
#   mpi          launches of examples/mpi by mpirun, and by the environment alone
#   java         the Java client, in the JVM and against it
#   spark        Spark's executors as workers, from the JVM and from Python
#   soak         the tests tagged `soak`: long or large; only when named
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo
cd "$repo"
# shellcheck source=scripts/bazel.sh
source "$repo/scripts/bazel.sh"

scratch=$(mktemp -d)
passed=0
failed=0

# run_config CONFIG COMMAND ARGUMENT...: Bazel with --config=CONFIG, or as usual for `default`. Each has an output folder
# of its own, so that it does not throw away what another has built.
run_config() {
  local options=()
  if [[ $1 != default ]]; then
    options=("--config=$1" --experimental_convenience_symlinks=ignore)
  fi
  run_bazel "$2" "${options[@]}" "${@:3}"
}

# add_up STATUS COUNTS: "PASSED FAILED" of a command that ended with STATUS.
add_up() {
  local counts=$2
  # What went wrong outside of any test.
  if (($1 != 0)) && [[ $counts == *" 0" ]]; then
    echo "that ended with exit code $1: see above" >&2
    counts="${counts% *} 1"
  fi
  passed=$((passed + ${counts% *}))
  failed=$((failed + ${counts#* }))
}

# run_tests CONFIG ARGUMENT...: `bazel test`, and adds up its test cases.
run_tests() {
  local report=$scratch/report status=0 counts
  rm -f "$report"
  run_config "$1" test --keep_going --build_event_json_file="$report" "${@:2}" || status=$?
  counts=$(python3 scripts/count_tests.py "$report") || counts="0 1"
  add_up "$status" "$counts"
}

# check NAME COMMAND...: counts as one test, which passes if COMMAND does.
check() {
  if "${@:2}"; then
    passed=$((passed + 1))
    echo "$1: passed"
  else
    failed=$((failed + 1))
    echo "$1: FAILED"
  fi
}

unit() {
  run_tests default --test_tag_filters=-soak -- //... -//tests/integration/...
}

integration() {
  run_tests default --test_tag_filters=-soak //tests/integration/...
  check "installed daemon, library and packages" tests/install/check.sh
}

static() {
  check "clang's thread-safety analysis" run_config clang build --keep_going -- //... -//tests/...
  check "formatting" scripts/format.sh --check
  check "directions between folders" tests/visibility/check.sh
}

tsan() {
  run_tests tsan --build_tests_only --test_tag_filters=tsan,-soak //...
}

asan() {
  run_tests asan --build_tests_only --test_tag_filters=-noasan,-soak //...
}

deploy() {
  if ! run_bazel build //server:paramd //client/cli:paramctl //examples/mnist:mnist_worker; then
    check "building what deploy/ starts" false
    return
  fi
  for recipe in systemd container kubernetes slurm; do
    check "deploy/$recipe" "tests/deploy/$recipe.sh"
  done
}

mpi() {
  if ! run_bazel build //server:paramd //client/cli:paramctl //examples/mpi:mpi_mnist; then
    check "building examples/mpi" false
    return
  fi
  check "four ranks train MNIST" tests/mpi/check.sh accuracy
  check "a killed rank holds up nobody" tests/mpi/check.sh killed_rank
  check "ranks by the environment alone" tests/mpi/check.sh environment
}

# run_junit REPORTS COMMAND...: COMMAND writes JUnit's reports to the folder REPORTS; adds up their test cases.
run_junit() {
  local status=0 counts
  rm -rf "$1"
  "${@:2}" </dev/null || status=$?
  counts=$(python3 scripts/count_junit.py "$1"/*.xml) || counts="0 1"
  add_up "$status" "$counts"
}

readonly python=.cache/python

# Also where the same version was installed before.
install_wheel() {
  local pip=("$python/bin/pip" --disable-pip-version-check install --quiet)
  "${pip[@]}" --force-reinstall --no-deps client/python/dist/*.whl && "${pip[@]}" paramd pyspark==4.2.0 pytest
}

java() {
  check "what is native in the jar" scripts/build_java.sh --natives
  run_junit client/java/target/surefire-reports \
    mvn --batch-mode --no-transfer-progress --file client/java/pom.xml package
}

spark() {
  check "the Python wheel, with the jar" scripts/build_python.sh
  run_junit client/java/target/surefire-reports \
    mvn --batch-mode --no-transfer-progress --file client/java/pom.xml test -Dgroups=spark -DexcludedGroups=
  check "its installation" install_wheel
  run_junit .cache/pytest "$python/bin/python" -m pytest -q client/python/tests -p no:cacheprovider \
    --junitxml=.cache/pytest/report.xml
}

soak() {
  local targets
  # Tagged `manual` too, so that no pattern finds them.
  mapfile -t targets < <(run_bazel query 'attr(tags, "[\[ ]soak[,\]]", tests(//...))')
  run_tests default --test_output=streamed "${targets[@]}"
}

groups=("$@")
for group in "${groups[@]}"; do
  if ! [[ $group =~ ^(unit|integration|static|tsan|asan|deploy|mpi|java|spark|soak)$ ]]; then
    echo "test: no group $group; there are: unit integration static tsan asan deploy mpi java spark soak" >&2
    exit 2
  fi
done
if (($# == 0)); then
  scripts/setup.sh || {
    echo "0 passed, 1 failed"
    exit 1
  }
  groups=(static unit integration deploy mpi java spark tsan asan)
fi

for group in "${groups[@]}"; do
  echo "== $group"
  before=("$passed" "$failed" "$SECONDS")
  "$group"
  echo "== $group: $((passed - before[0])) passed, $((failed - before[1])) failed in $((SECONDS - before[2])) s"
done

stop_bazel
echo "$passed passed, $failed failed"
((failed == 0))
