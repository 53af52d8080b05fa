#!/bin/bash
# Launches of examples/mpi with Debian's Open MPI and without any MPI.
#
#   tests/mpi/check.sh CASE     fails unless that goes as it should; the cases are the functions named at the end
#
# Needs the built programs, and MNIST in data/mnist.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly repo
readonly mpi_mnist=$repo/bazel-bin/examples/mpi/mpi_mnist
readonly paramd=$repo/bazel-bin/server/paramd
readonly paramctl=$repo/bazel-bin/client/cli/paramctl
# More ranks than cores, and as root where tests run as root.
launch=(mpirun --oversubscribe)
if ((EUID == 0)); then launch+=(--allow-run-as-root); fi

folder=$(mktemp -d)
pids=()
clean_up() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$folder"
}
trap clean_up EXIT

fail() {
  echo "mpi: $*" >&2
  tail -n 30 "$folder"/out* >&2
  exit 1
}

# await COMMAND...: until it succeeds, for a minute at most.
await() {
  local deadline=$((SECONDS + 60))
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || fail "timed out waiting for: $*"
    sleep 0.05
  done
}

# check_accuracy FILE PERCENT: the last launch's, which FILE holds.
check_accuracy() {
  local accuracy
  accuracy=$(sed -n 's/.*test accuracy \([0-9.]*\) %.*/\1/p' "$1")
  [[ $accuracy ]] || fail "no accuracy was told"
  awk -v is="$accuracy" -v wanted="$2" 'BEGIN { exit !(is >= wanted) }' || fail "the accuracy is $accuracy %, not $2 %"
}

# The ranks of the launch whose mpirun has process id $1, by their parent.
ranks_of() { pgrep --parent "$1" --full mpi_mnist; }

accuracy() {
  "${launch[@]}" -n 4 "$mpi_mnist" --data="$repo/data/mnist" --epochs=3 >"$folder/out" 2>&1 || fail "mpirun ended with $?"
  grep -q "4 of 4 ranks finished" "$folder/out" || fail "not all ranks finished"
  check_accuracy "$folder/out" 95
}

ensemble() {
  "${launch[@]}" -n 2 "$mpi_mnist" --data="$repo/data/mnist" --epochs=2 --algorithm=ensemble --overlap --window=20 \
    --learning_rate=0.2 >"$folder/out" 2>&1 || fail "mpirun ended with $?"
  grep -q "ensemble: 2 of 2 ranks finished" "$folder/out" || fail "not all ranks finished"
  check_accuracy "$folder/out" 90
}

plugin() {
  "${launch[@]}" -n 2 "$mpi_mnist" --data="$repo/data/mnist" --epochs=1 --algorithm=server_momentum --join_timeout=20s \
    --plugin="$repo/bazel-bin/examples/custom_algorithm/libcustom_algorithm.so" >"$folder/out" 2>&1 ||
    fail "mpirun ended with $?"
  grep -q "server_momentum: 2 of 2 ranks finished" "$folder/out" || fail "not all ranks finished"
}

# fails TEXT COMMAND...: that it fails, in less than the minute that ranks wait for one another, and says TEXT.
fails() {
  local status=0
  timeout 45 "${@:2}" >"$folder/out" 2>&1 || status=$?
  ((status == 1)) || fail "this ended with $status: ${*:2}"
  grep -q "$1" "$folder/out" || fail "this does not say \"$1\": ${*:2}"
}

# host_with ARGUMENTS: "$folder/paramd" is the daemon with these, in a shell's words.
host_with() {
  printf '#!/bin/bash\nexec "%s" %s\n' "$paramd" "$1" >"$folder/paramd"
  chmod +x "$folder/paramd"
}

# What keeps one rank from training ends all, with its cause, at once.
early_failure() {
  local train=("$mpi_mnist" --data="$repo/data/mnist") rank
  # mpirun ends the other before or after it has told the cause.
  fails "rank 1: NOT_FOUND.*/nowhere\|rank 0: ABORTED: rank 1 failed: NOT_FOUND" \
    "${launch[@]}" -n 1 "${train[@]}" : -n 1 "$mpi_mnist" --data=/nowhere
  fails "rank 1: INVALID_ARGUMENT.*another model than rank 0's\|rank 0: ABORTED: rank 1 failed: INVALID_ARGUMENT" \
    "${launch[@]}" -n 1 "${train[@]}" --algorithm=adag : -n 1 "${train[@]}" --algorithm=easgd
  fails "rank [01]: .*consistency 'sometimes'" "${launch[@]}" -n 2 "${train[@]}" --consistency=sometimes
  fails "rank [01]: .*can't run /nowhere" "${launch[@]}" -n 2 "${train[@]}" --paramd=/nowhere
  # Nobody can join: rank 0, which hosts the daemon, lets the others find out.
  host_with '"$@" --max_shared_bytes=0'
  timeout 45 "${launch[@]}" --enable-recovery -n 2 "${train[@]}" --transport=shm --paramd="$folder/paramd" \
    >"$folder/out" 2>&1 || fail "that ended with $?"
  for rank in 0 1; do
    grep -q "rank $rank: .*--max_shared_bytes=0" "$folder/out" || fail "rank $rank does not say why it can't train"
  done
  # Another MPI's launcher, and a batch system's script.
  fails "rank 1: .*one of 2 ranks (PMI_RANK=1 and PMI_SIZE=2)" env PMI_RANK=1 PMI_SIZE=2 "${train[@]}"
  fails "rank 0: .*one of 4 ranks (SLURM_PROCID=0" env SLURM_PROCID=0 SLURM_NTASKS=4 "${train[@]}"
}

killed_rank() {
  local mpirun victim
  # A daemon that says who joins.
  host_with '"${@/--log_level=warning/--log_level=info}"'" 2>'$folder/daemon.log'"
  mkdir "$folder/temporary"
  # Long enough that the kill comes midway; and nobody waits for so long a lease.
  TMPDIR=$folder/temporary "${launch[@]}" --enable-recovery -n 4 "$mpi_mnist" --data="$repo/data/mnist" --epochs=30 \
    --lease=1h --paramd="$folder/paramd" >"$folder/out" 2>&1 &
  mpirun=$!
  pids+=("$mpirun")
  await started
  # What the launch keeps there while it runs, nobody removes if it is killed.
  [[ -z $(find "$folder/temporary" -name 'paramd*') ]] || fail "the launch keeps files"
  victim=$(rank "$mpirun" 2)
  kill -KILL "$victim"
  timeout 300 tail --pid="$mpirun" --follow /dev/null || fail "the other ranks hang"
  wait "$mpirun" || fail "mpirun ended with $?"
  pids=()
  grep -q "^adag: 3 of 4 ranks finished" "$folder/out" || fail "it was not the three others that finished"
  grep -q "rank 0: ABORTED: 3 of 4 ranks finished: rank 2 has lost its connection" "$folder/out" || fail "rank 0 calls it a success"
  check_accuracy "$folder/out" 95
}

# rank MPIRUN N: the process id of its rank N.
rank() {
  local pid
  for pid in $(ranks_of "$1"); do
    if tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$2"; then echo "$pid"; fi
  done
}

# Whether all ranks have joined the daemon that rank 0 hosts.
started() { (($(grep -c "joined.*worker=" "$folder/daemon.log") >= 4)); }

# start_daemon: sets $server.
start_daemon() {
  "$paramd" --listen=127.0.0.1:0 --port_file="$folder/port" --log_level=warning >"$folder/out.daemon" 2>&1 &
  pids+=($!)
  await test -s "$folder/port"
  server=127.0.0.1:$(<"$folder/port")
}

# run_ranks "FLAG ..." "VARIABLE=VALUE ..." ...: a rank for each list of variables, to its end, its output in out.0,
# out.1, ...; sets $failed to how many failed.
run_ranks() {
  local ranks=() flags variables entry pid
  read -ra flags <<<"$1"
  for entry in "${@:2}"; do
    read -ra variables <<<"$entry"
    env "${variables[@]}" "$mpi_mnist" --server="$server" --data="$repo/data/mnist" "${flags[@]}" \
      >"$folder/out.${#ranks[@]}" 2>&1 &
    ranks+=($!)
  done
  failed=0
  for pid in "${ranks[@]}"; do wait "$pid" || failed=$((failed + 1)); done
}

environment() {
  start_daemon
  # As srun and as a launcher of PMI set them: no MPI takes part.
  run_ranks "--model=srun --epochs=3" "SLURM_PROCID=0 SLURM_NTASKS=2" "SLURM_PROCID=1 SLURM_NTASKS=2"
  ((failed == 0)) && grep -q "2 of 2 ranks finished" "$folder/out.0" || fail "not both ranks of srun finished"
  check_accuracy "$folder/out.0" 95
  # A batch system's variables around those of such a launcher.
  run_ranks --model=batch "SLURM_PROCID=0 SLURM_NTASKS=4 PMI_RANK=0 PMI_SIZE=2" \
    "SLURM_PROCID=0 SLURM_NTASKS=4 PMI_RANK=1 PMI_SIZE=2"
  ((failed == 0)) && grep -q "2 of 2 ranks finished" "$folder/out.0" || fail "not both ranks within a batch job finished"
  # Again, with other ranks: an earlier launch's don't count.
  run_ranks --model=batch "PMI_RANK=0 PMI_SIZE=1"
  ((failed == 0)) && grep -q "1 of 1 ranks finished" "$folder/out.0" || fail "a second launch did not finish"
  run_ranks "--model=batch --join_timeout=2s" "PMI_RANK=0 PMI_SIZE=2"
  ((failed == 1)) && grep -q "1 of 2 ranks finished: rank 1 never came" "$folder/out.0" || fail "an earlier rank counted"
}

environment_failure() {
  start_daemon
  fails "mpi_mnist: INVALID.*PMI_RANK=2 and PMI_SIZE=2" \
    env PMI_RANK=2 PMI_SIZE=2 "$mpi_mnist" --server="$server" --data="$repo/data/mnist"
  # Four that all are rank 0.
  run_ranks "--model=clash --join_timeout=5s --epochs=20" "PMI_RANK=0 PMI_SIZE=4" "PMI_RANK=0 PMI_SIZE=4" \
    "PMI_RANK=0 PMI_SIZE=4" "PMI_RANK=0 PMI_SIZE=4"
  ((failed == 4)) || fail "$failed of 4 that clash failed"
  grep -q "PMI_RANK=0" "$folder"/out.[0-3] || fail "nobody says why the ranks clash"
  # One that can't train.
  env PMI_RANK=1 PMI_SIZE=2 "$mpi_mnist" --server="$server" --model=data --data=/nowhere >"$folder/out.1" 2>&1 &
  pids+=($!)
  fails "1 of 2 ranks finished: rank 1 failed: NOT_FOUND.*/nowhere" \
    env PMI_RANK=0 PMI_SIZE=2 "$mpi_mnist" --server="$server" --model=data --data="$repo/data/mnist"
  # One that would train another model.
  run_ranks "--model=other --epochs=1" "PMI_RANK=0 PMI_SIZE=1"
  env PMI_RANK=1 PMI_SIZE=2 "$mpi_mnist" --server="$server" --model=other --data="$repo/data/mnist" --algorithm=easgd \
    >"$folder/out.1" 2>&1 &
  pids+=($!)
  fails "1 of 2 ranks finished: rank 1 failed: ALREADY_EXISTS" env PMI_RANK=0 PMI_SIZE=2 "$mpi_mnist" \
    --server="$server" --model=other --data="$repo/data/mnist" --epochs=1
}

# The second launch with a model, where rank 1 has ended before rank 0 begins.
relaunch() {
  local rank_0=(env PMI_RANK=0 PMI_SIZE=2 "$mpi_mnist" --data="$repo/data/mnist" --epochs=1)
  local rank_1=(env PMI_RANK=1 PMI_SIZE=2 "$mpi_mnist" --epochs=1)
  start_daemon
  run_ranks --epochs=1 "PMI_RANK=0 PMI_SIZE=2" "PMI_RANK=1 PMI_SIZE=2"
  ((failed == 0)) || fail "the first launch failed"
  "${rank_1[@]}" --server="$server" --data=/nowhere >"$folder/out.1" 2>&1 &
  pids+=($!)
  await rank_1_is failed
  fails "1 of 2 ranks finished: rank 1 failed: NOT_FOUND.*/nowhere" "${rank_0[@]}" --server="$server"
  "${rank_1[@]}" --server="$server" --data="$repo/data/mnist" >"$folder/out.1" 2>&1 &
  pids+=($!)
  await rank_1_is left
  timeout 45 "${rank_0[@]}" --server="$server" >"$folder/out" 2>&1 || fail "rank 0 ended with $?"
  grep -q "2 of 2 ranks finished" "$folder/out" || fail "not both ranks of a later launch finished"
  wait "${pids[-1]}" || fail "rank 1 ended with $?"
}

# rank_1_is STATE: as the daemon says, of the model's default name.
rank_1_is() { "$paramctl" show mnist --server="$server" | grep -q "rank-1 .*$1"; }

readonly cases='accuracy|ensemble|plugin|early_failure|killed_rank|environment|environment_failure|relaunch'
[[ ${1-} =~ ^($cases)$ ]] || {
  echo "usage: tests/mpi/check.sh $cases" >&2
  exit 2
}
"$1"
