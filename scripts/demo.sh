#!/bin/bash
# The main job: four worker processes train a network on MNIST through a daemon. Installs and builds what is missing.
#
#   scripts/demo.sh [--algorithm=NAME] [--workers=N] [--window=N] [--epochs=N] [--batch_size=N] [--layers=N,...]
#                   [--data=DIR] [--json=FILE]      --help tells the rest, once this is built
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo
# shellcheck source=scripts/bazel.sh
source "$repo/scripts/bazel.sh"

data=("--data=$repo/data/mnist")
for argument in "$@"; do
  if [[ $argument =~ ^--?help(=|$) ]]; then
    print_head
    if [[ -x $repo/bazel-bin/examples/mnist/mnist ]]; then "$repo/bazel-bin/examples/mnist/mnist" --help; fi
    exit
  fi
  if [[ $argument =~ ^--?data(=|$) ]]; then data=(); fi
done
"$repo/scripts/setup.sh" --packages
if ((${#data[@]})); then "$repo/scripts/setup.sh" --data; fi

build=(build --show_result=0 "--ui_event_filters=-info,-stdout" --noshow_loading_progress)
targets=(//server:paramd //examples/mnist:mnist //examples/mnist:mnist_worker)
if ! [[ -x $repo/bazel-bin/examples/mnist/mnist ]]; then echo "demo: building; the first time takes minutes" >&2; fi
run_bazel "${build[@]}" "${targets[@]}" || {
  echo "demo: the build failed; see above. \`bazel build ${targets[*]}\` shows it again." >&2
  exit 1
}
launcher=$(bazel_bin)/examples/mnist/mnist
stop_bazel
trap - EXIT INT TERM
exec "$launcher" "${data[@]}" "$@"
