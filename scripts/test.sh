#!/bin/bash
# Runs all tests, or the groups named; closes with the slowest of them and "N passed, N failed, N skipped". Without a
# group it also installs what is missing.
#
#   scripts/test.sh [GROUP...]
#
#   unit         every test that runs in one process
#   integration  daemons, workers and tools as real processes
#   static       clang's thread-safety analysis, formatting, the directions between folders, and docs/promises.md
#   tsan         the tests tagged `tsan`, under ThreadSanitizer
#   asan         every test that is not tagged `noasan`, under AddressSanitizer and UndefinedBehaviorSanitizer
#   deploy       the recipes of deploy/, as far as they run without an engine for containers
#   mpi          launches of examples/mpi by mpirun, and by the environment alone
#   java         the Java client, in the JVM and against it
#   spark        Spark's executors as workers, from the JVM and from Python
#   soak         the tests tagged `soak`: long or large; only when named
#   mutation     whether tests notice that a check of a peer's input or identity is missing; only when named
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo
cd "$repo"
# shellcheck source=scripts/bazel.sh
source "$repo/scripts/bazel.sh"

scratch=$(mktemp -d)
passed=0
failed=0
skipped=0
# Lines "SECONDS NAME", of tests and of groups.
readonly times=$scratch/times group_times=$scratch/group_times

# run_config CONFIG COMMAND ARGUMENT...: Bazel with --config=CONFIG, or as usual for `default`. Each has an output folder
# of its own, so that it does not throw away what another has built.
run_config() {
  local options=()
  if [[ $1 != default ]]; then
    options=("--config=$1" --experimental_convenience_symlinks=ignore)
  fi
  run_bazel "$2" "${options[@]}" "${@:3}"
}

# add_up STATUS REPORT...: the test cases that are in the reports of a command that ended with STATUS.
add_up() {
  local counts
  read -ra counts < <(python3 scripts/count_tests.py "$times" "${@:2}" || echo 0 1 0)
  # What went wrong outside of any test.
  if (($1 != 0 && counts[1] == 0)); then
    echo "that ended with exit code $1: see above" >&2
    counts[1]=1
  fi
  passed=$((passed + counts[0]))
  failed=$((failed + counts[1]))
  skipped=$((skipped + counts[2]))
}

# run_tests CONFIG ARGUMENT...: `bazel test`, and adds up its test cases.
run_tests() {
  local report=$scratch/report status=0
  rm -f "$report"
  # Many tests wait most of the time.
  run_config "$1" test --keep_going --jobs='HOST_CPUS*1.5' --local_cpu_resources='HOST_CPUS*1.5' \
    --build_event_json_file="$report" --test_arg=--min-duration=1 "${@:2}" || status=$?
  add_up "$status" "$report"
}

# check NAME COMMAND...: counts as one test, which passes if COMMAND does. Its exit code 77 says that it can't run here.
check() {
  local status=0 start=$SECONDS
  "${@:2}" || status=$?
  case $status in
    0) passed=$((passed + 1)) && echo "$1: passed" ;;
    77) skipped=$((skipped + 1)) && echo "$1: skipped" ;;
    *) failed=$((failed + 1)) && echo "$1: FAILED" ;;
  esac
  echo "$((SECONDS - start)) $1" >>"$times"
}

# slowest COUNT FILE: those of its lines "SECONDS NAME" that begin with the largest numbers.
slowest() {
  sort --numeric-sort --reverse "$2" | sed -n "1,$1s/^\([0-9]*\)\S*/  \1 s/p"
}

unit() {
  run_tests default --test_tag_filters=-soak -- //... -//tests/integration/... -//tests/chaos/...
}

integration() {
  run_tests default --test_tag_filters=-soak //tests/integration/... //tests/chaos/...
  check "installed daemon, library and packages" tests/install/check.sh
}

static() {
  check "clang's thread-safety analysis" run_config clang build --keep_going -- //... -//tests/...
  check "formatting" scripts/format.sh --check
  check "directions between folders" tests/visibility/check.sh
  check "promises and their tests" tests/promises/check.py
  check "scripts look at their arguments first" tests/scripts/check.sh arguments_first
  check "scripts without a package" tests/scripts/check.sh missing_package
  check "scripts without clang-format" tests/scripts/check.sh missing_formatter
  check "scripts without Bazel" tests/scripts/check.sh missing_bazel
  check "scripts without a network" tests/scripts/check.sh missing_network
  check "scripts leave nothing behind" tests/scripts/check.sh nothing_left
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
  local targets=(//server:paramd //client/cli:paramctl //examples/mpi:mpi_mnist //examples/custom_algorithm:all)
  if ! run_bazel build "${targets[@]}"; then
    check "building examples/mpi" false
    return
  fi
  check "four ranks train MNIST" tests/mpi/check.sh accuracy
  check "two ranks train an ensemble" tests/mpi/check.sh ensemble
  check "two ranks train an algorithm of their user's" tests/mpi/check.sh plugin
  check "what keeps one rank from training ends all" tests/mpi/check.sh early_failure
  check "a killed rank holds up nobody" tests/mpi/check.sh killed_rank
  check "ranks by the environment alone" tests/mpi/check.sh environment
  check "ranks by the environment alone that clash or fail" tests/mpi/check.sh environment_failure
  check "a rank that has ended before rank 0 of a later launch" tests/mpi/check.sh relaunch
}

# run_junit REPORTS COMMAND...: COMMAND writes JUnit's reports to the folder REPORTS; adds up their test cases.
run_junit() {
  local status=0
  rm -rf "$1"
  "${@:2}" </dev/null || status=$?
  add_up "$status" "$1"/*.xml
}

readonly python=.cache/python

# Also where the same version was installed before.
install_wheel() {
  [[ -x $python/bin/pip ]] || python3 -m venv "$python" || return
  local pip=("$python/bin/pip" --disable-pip-version-check install --quiet)
  "${pip[@]}" --force-reinstall --no-deps client/python/dist/*.whl && "${pip[@]}" paramd pyspark==4.2.0 pytest
}

java() {
  local natives=client/java/target/classes/paramd/native/linux-x86_64
  mkdir -p "$natives"
  touch "$natives/of_an_earlier_build.so"
  check "what is native in the jar" scripts/build_java.sh --natives
  run_junit client/java/target/surefire-reports \
    mvn --batch-mode --no-transfer-progress --file client/java/pom.xml package -Pdocumented
  check "the jar holds what it must, and a minimal image of the JDK runs it" tests/scripts/check.sh jar
  check "a program of Maven's gets the jar where it was installed" tests/scripts/check.sh installed_jar
}

spark() {
  check "the Python wheel, with the jar" scripts/build_python.sh
  check "its installation" install_wheel
  # JVMs that live for seconds don't get back what a better compiler takes.
  local -x JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
  # Several at once: clusters wait much of the time.
  rm -rf .cache/pytest
  "$python/bin/python" -m pytest -q client/python/tests -p no:cacheprovider --junitxml=.cache/pytest/report.xml \
    </dev/null >"$scratch/pytest.log" 2>&1 &
  local pytest=$! status=0
  run_junit client/java/target/surefire-reports \
    mvn --batch-mode --no-transfer-progress --file client/java/pom.xml test -Dgroups=spark -DexcludedGroups= -DforkCount=2
  wait "$pytest" || status=$?
  cat "$scratch/pytest.log"
  add_up "$status" .cache/pytest/report.xml
}

soak() {
  local targets
  # Tagged `manual` too, so that no pattern finds them.
  mapfile -t targets < <(run_bazel query 'attr(tags, "[\[ ]soak[,\]]", tests(//...))')
  run_tests default --test_output=streamed "${targets[@]}"
}

mutation() {
  check "a removed check fails a test" tests/mutation/check.py
}

groups=("$@")
for group in "${groups[@]}"; do
  if ! [[ $group =~ ^(unit|integration|static|tsan|asan|deploy|mpi|java|spark|soak|mutation)$ ]]; then
    echo "test: no group $group; usage: scripts/test.sh [GROUP...], with the groups" \
      "unit integration static tsan asan deploy mpi java spark soak mutation" >&2
    exit 2
  fi
done
if (($# == 0)); then
  scripts/setup.sh || {
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
  }
  groups=(static unit integration java waiting tsan asan)
else
  # A group may do without some of it.
  scripts/setup.sh --check || true
fi

# run_group GROUP
run_group() {
  local before=("$passed" "$failed" "$skipped" "$SECONDS") seconds
  echo "== $1"
  "$1"
  seconds=$((SECONDS - before[3]))
  echo "== $1: $((passed - before[0])) passed, $((failed - before[1])) failed, $((skipped - before[2])) skipped in $seconds s"
  echo "$seconds $1" >>"$group_times"
}

# Process groups of groups that run at once: a signal reaches them through this script.
started=()
stop_groups() {
  local pid
  for pid in "${started[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
  wait
}
trap 'stop_groups; interrupt 130' INT
trap 'stop_groups; interrupt 143' TERM

# start_group GROUP: for finish_group, once it has ended.
start_group() {
  set -m
  (
    set +m
    passed=0 failed=0 skipped=0
    run_group "$1"
    echo "$passed $failed $skipped" >"$scratch/counts.$1"
  ) </dev/null >"$scratch/log.$1" 2>&1 &
  started+=($!)
  set +m
}

# finish_group GROUP: shows what it has said, and adds up its test cases.
finish_group() {
  local counts=(0 1 0)
  cat "$scratch/log.$1"
  if [[ -f $scratch/counts.$1 ]]; then read -ra counts <"$scratch/counts.$1"; fi
  passed=$((passed + counts[0]))
  failed=$((failed + counts[1]))
  skipped=$((skipped + counts[2]))
}

touch "$times"
for group in "${groups[@]}"; do
  if [[ $group == waiting ]]; then
    # Much of their time nothing computes.
    for part in deploy mpi spark; do start_group "$part"; done
    wait
    started=()
    for part in deploy mpi spark; do finish_group "$part"; done
  else
    run_group "$group"
  fi
done
stop_bazel

echo "slowest groups:"
slowest 20 "$group_times"
echo "slowest tests, without what is built for them:"
slowest 15 "$times"
echo "all in $SECONDS s"
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
