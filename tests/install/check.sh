#!/bin/bash
# Installs paramd into an empty folder, and fails unless programs and a plugin outside the sources build against it, by
# CMake and by pkg-config, and work with the daemon that was installed.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly repo
readonly program=$repo/tests/install/program
folder=$(mktemp -d)
daemon=
trap 'if [[ $daemon ]]; then kill "$daemon"; wait "$daemon" || true; fi; rm -rf "$folder"' EXIT

fail() {
  echo "install: $*" >&2
  exit 1
}

DESTDIR=$folder "$repo/scripts/install.sh" --prefix=/opt/paramd
root=$folder/opt/paramd
for file in bin/paramd bin/paramctl include/paramd/paramd.h lib/libparamd.so lib/libparamd.so.0 \
  include/paramd/plugin/algorithms/{algorithm,kernel,registry}.h \
  lib/pkgconfig/paramd.pc lib/cmake/paramd/paramdConfig.cmake lib/cmake/paramd/paramdConfigVersion.cmake; do
  [[ -f $root/$file ]] || fail "there is no $file"
done
[[ -z $(find "$folder/opt" -mindepth 1 -maxdepth 1 ! -name paramd) ]] || fail "it wrote outside its prefix"
if grep -r -I -l -F "$folder" "$root"; then fail "these files name the staging folder"; fi

for tool in paramd paramctl; do
  needed=$(readelf --dynamic --wide "$root/bin/$tool" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
  for library in $needed; do
    [[ $library =~ ^(libc|libm|ld-linux-x86-64)\.so\.[0-9]+$ ]] || fail "$tool needs $library"
  done
done

cp "$repo/examples/custom_algorithm/server_momentum.cc" "$folder/algorithm.cc"
build_by_cmake() {
  cmake -S "$program" -B "$folder/build" -DCMAKE_PREFIX_PATH="$root" -DCMAKE_BUILD_TYPE=Release \
    -DALGORITHM="$folder/algorithm.cc" &&
    cmake --build "$folder/build"
}
build_by_cmake >"$folder/cmake.log" 2>&1 || fail "CMake: $(<"$folder/cmake.log")"

port_file=$folder/port
"$root/bin/paramd" --listen=127.0.0.1:0 --port_file="$port_file" --plugin="$folder/build/libalgorithm.so" \
  >"$folder/log" 2>&1 &
daemon=$!
until [[ -s $port_file ]]; do
  kill -0 "$daemon" 2>/dev/null || fail "the daemon did not start: $(<"$folder/log")"
  sleep 0.05
done
server=127.0.0.1:$(<"$port_file")
"$root/bin/paramctl" --server="$server" status >/dev/null
"$root/bin/paramctl" --server="$server" create plugged --algorithm=server_momentum --tensor=w:4 >/dev/null
"$folder/build/from_c" "$server"
"$folder/build/from_cxx" "$server"
export PKG_CONFIG_PATH=$root/lib/pkgconfig
[[ $(pkg-config --modversion paramd) == $("$folder/build/from_c" "$server" | cut -d' ' -f2) ]] ||
  fail "pkg-config tells another version than the library"
# shellcheck disable=SC2046  # one word a flag
cc -std=c11 -Wall -Wextra -Werror -o "$folder/by_pkg_config" "$program/main.c" $(pkg-config --cflags --libs paramd)
LD_LIBRARY_PATH=$root/lib "$folder/by_pkg_config" "$server"

kill "$daemon"
wait "$daemon" || fail "the daemon ended with $?"
daemon=
