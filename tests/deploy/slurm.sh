#!/bin/bash
# The batch script trains. In place of a cluster there is an srun that starts its tasks on this host.
source "$(dirname "${BASH_SOURCE[0]}")/recipes.sh"

mkdir "$scratch/bin" "$scratch/tmp"
cat >"$scratch/bin/srun" <<'SRUN'
#!/bin/bash
while [[ $1 == --* ]]; do shift; done
status=0
for ((rank = 0; rank < SLURM_NTASKS; rank++)); do
  SLURM_PROCID=$rank "$@" &
  tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task" || status=$?; done
exit "$status"
SRUN
chmod +x "$scratch/bin/srun"
ln -s "$paramd" "$repo/bazel-bin/client/cli/paramctl" "$repo/bazel-bin/examples/mnist/mnist_worker" "$scratch/bin"

train() {
  PATH=$scratch/bin:$PATH SLURM_NTASKS=2 SLURM_JOB_NUM_NODES=1 TMPDIR=$scratch/tmp PARAMD_DATA=$1 \
    "$repo/deploy/slurm/train.sbatch" --epochs=1 >"$scratch/out" 2>"$scratch/err"
}

# Neither a daemon nor its folder is left behind.
check_clean() {
  [[ -z $(ls -A "$scratch/tmp") ]] || { echo "left behind:" && ls "$scratch/tmp" && exit 1; }
  if pgrep --full "port_file=$scratch" >/dev/null; then echo "the daemon still runs" && exit 1; fi
}

train "$repo/data/mnist" || { cat "$scratch/out" "$scratch/err" && exit 1; }
workers=$(grep --count '^ *worker-[01] .* left ' "$scratch/out") || true
((workers == 2)) || { echo "two workers have not left after their work:" && cat "$scratch/out" && exit 1; }
check_clean

# A job whose workers fail says so.
if train "$scratch"; then echo "a job without data ended well" && exit 1; fi
check_clean
