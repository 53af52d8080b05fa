#!/bin/bash
# The batch script trains, under a Slurm of one node on loopback that lives as long as this test. Its daemons need root.
if ((EUID != 0)); then
  sudo --non-interactive true || { echo "Slurm's daemons need root, or sudo without a password" >&2 && exit 77; }
  exec sudo "${BASH_SOURCE[0]}"
fi
source "$(dirname "${BASH_SOURCE[0]}")/recipes.sh"

readonly cluster=$scratch/cluster
daemons=()
stop_cluster() {
  for daemon in "${daemons[@]}"; do kill "$daemon" 2>/dev/null || true; done
  for daemon in "${daemons[@]}"; do wait "$daemon" || true; done
  rm -rf "$scratch"
}
trap stop_cluster EXIT

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# await WHAT COMMAND...: runs COMMAND until it succeeds.
await() {
  for ((i = 0; i < 300; i++)); do
    if "${@:2}" >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  echo "$1 does not come up:" >&2
  tail -n 20 "$cluster"/*.log >&2
  exit 1
}

node_is_idle() { [[ $(sinfo --noheader --format=%T) == idle ]]; }

start_cluster() {
  local node
  node=$(hostname -s)
  mkdir -p "$cluster"/{state,spool}
  # slurmd wants to change to the folder of its jobs as other users.
  chmod 755 "$scratch" "$cluster"
  (umask 077 && head --bytes=128 /dev/urandom >"$cluster/munge.key")
  munged --foreground --force --key-file="$cluster/munge.key" --socket="$cluster/munge.sock" \
    --pid-file="$cluster/munged.pid" --seed-file="$cluster/seed" >"$cluster/munged.log" 2>&1 &
  daemons=($!)
  cat >"$cluster/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$cluster/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$cluster/state
SlurmdSpoolDir=$cluster/spool
SlurmctldPidFile=$cluster/slurmctld.pid
SlurmdPidFile=$cluster/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
# Four CPUs, whatever this machine has.
SlurmdParameters=config_overrides
NodeName=$node NodeAddr=127.0.0.1 CPUs=4
PartitionName=main Nodes=ALL Default=YES
CONF
  export SLURM_CONF=$cluster/slurm.conf
  await munged test -S "$cluster/munge.sock"
  slurmctld -D -c >"$cluster/slurmctld.log" 2>&1 &
  daemons+=($!)
  slurmd -D -c >"$cluster/slurmd.log" 2>&1 &
  daemons+=($!)
  await "the node" node_is_idle
}

# train DATA: as a job; what it prints is in $scratch/out.
train() {
  PARAMD_BIN=$scratch/bin PARAMD_DATA=$1 TMPDIR=$scratch/tmp timeout 300 \
    sbatch --wait --quiet --output="$scratch/out" "$repo/deploy/slurm/train.sbatch" --epochs=1
}

# Neither a daemon nor its folder is left behind.
check_clean() {
  [[ -z $(ls -A "$scratch/tmp") ]] || { echo "left behind:" && ls "$scratch/tmp" && exit 1; }
  if pgrep --full "port_file=$scratch" >/dev/null; then echo "the daemon still runs" && exit 1; fi
}

mkdir "$scratch/bin" "$scratch/tmp"
ln -s "$paramd" "$repo/bazel-bin/client/cli/paramctl" "$repo/bazel-bin/examples/mnist/mnist_worker" "$scratch/bin"
start_cluster

train "$repo/data/mnist" || { cat "$scratch/out" && exit 1; }
workers=$(grep --count '^worker-[0-3] .* left ' "$scratch/out") || true
((workers == 4)) || { echo "four workers have not left after their work:" && cat "$scratch/out" && exit 1; }
check_clean

# A job whose workers fail says so.
if train "$scratch"; then echo "a job without data ended well" && cat "$scratch/out" && exit 1; fi
check_clean
