#!/bin/bash
# Launches of examples/mpi with Debian's Open MPI and without any MPI.
#
#   tests/mpi/check.sh CASE     accuracy, killed_rank or environment: fails unless that goes as it should
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

killed_rank() {
  local mpirun victim
  # Long enough that the kill comes midway.
  TMPDIR=$folder "${launch[@]}" --enable-recovery -n 4 "$mpi_mnist" --data="$repo/data/mnist" --epochs=30 --lease=5s \
    >"$folder/out" 2>&1 &
  mpirun=$!
  pids+=("$mpirun")
  await started
  victim=$(rank "$mpirun" 2)
  kill -KILL "$victim"
  timeout 300 tail --pid="$mpirun" --follow /dev/null || fail "the other ranks hang"
  wait "$mpirun" || fail "mpirun ended with $?"
  pids=()
  grep -q "3 of 4 ranks finished" "$folder/out" || fail "it was not the three others that finished"
  check_accuracy "$folder/out" 95
}

# rank MPIRUN N: the process id of its rank N.
rank() {
  local pid
  for pid in $(ranks_of "$1"); do
    if tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$2"; then echo "$pid"; fi
  done
}

# Whether the ranks train: the daemon that rank 0 hosts has applied commits.
started() {
  local port
  port=$(cat "$folder/paramd-mpi."*/port) && "$paramctl" --server="127.0.0.1:$port" show mnist | grep -q 'version *[1-9]'
}

environment() {
  local i server model
  "$paramd" --listen=127.0.0.1:0 --port_file="$folder/port" --log_level=warning >"$folder/out.daemon" 2>&1 &
  pids+=($!)
  await test -s "$folder/port"
  server=127.0.0.1:$(<"$folder/port")
  # As srun and as a launcher of PMI set them: no MPI takes part.
  for model in SLURM_PROCID:SLURM_NTASKS PMI_RANK:PMI_SIZE; do
    local ranks=()
    for i in 0 1; do
      env "${model%:*}=$i" "${model#*:}=2" "$mpi_mnist" --server="$server" --model="${model%:*}" --epochs=3 \
        --data="$repo/data/mnist" >"$folder/out.$i" 2>&1 &
      ranks+=($!)
    done
    for i in "${ranks[@]}"; do wait "$i" || fail "a rank ended with $?"; done
    grep -q "2 of 2 ranks finished" "$folder/out.0" || fail "not both ranks finished"
    check_accuracy "$folder/out.0" 95
  done
  if env SLURM_PROCID=2 SLURM_NTASKS=2 "$mpi_mnist" --server="$server" --data="$repo/data/mnist" >"$folder/out.2" 2>&1; then
    fail "a rank beyond the size was accepted"
  fi
}

case ${1-} in
  accuracy | killed_rank | environment) "$1" ;;
  *) echo "usage: tests/mpi/check.sh accuracy|killed_rank|environment" >&2 && exit 2 ;;
esac
