#!/bin/bash
# Installs paramd into an empty folder, and fails unless programs and a plugin outside the sources build against it, by
# CMake and by pkg-config, and work with the daemon that was installed, whatever else is in their process.
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

# As a careful root does: it is for everybody all the same.
(umask 077 && DESTDIR=$folder "$repo/scripts/install.sh" --prefix=/opt/paramd)
root=$folder/opt/paramd
hidden=$(find "$root" ! -type l ! -perm -o=r)
[[ -z $hidden ]] || fail "these are not for everybody to read: $hidden"
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

# What nobody is to take notice of: it would talk, or not work.
readonly grpc_environment=(
  env GRPC_VERBOSITY=debug GRPC_TRACE=all GRPC_POLL_STRATEGY=none
  http_proxy=http://127.0.0.1:1 grpc_proxy=http://127.0.0.1:1
)
port_file=$folder/port
"${grpc_environment[@]}" "$root/bin/paramd" --listen=127.0.0.1:0 --port_file="$port_file" --plugin="$folder/build/libalgorithm.so" \
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

# A library that shows all that those show which ours is made of, and can do nothing.
{
  echo '.text'
  for library in "$root"/lib/paramd/paramd-*; do
    nm --dynamic --defined-only --just-symbols "$(cc -print-file-name="${library##*/paramd-????????????-}")"
  done | sed 's/@.*//' | sort --unique | sed 's/.*/.globl "&"\n.type "&", @function\n"&":/'
  echo 'ud2'
  echo '.section .note.GNU-stack, "", @progbits'
} >"$folder/clash.s"
cc -shared -o "$folder/clash.so" "$folder/clash.s"
(($(nm --dynamic --defined-only "$folder/clash.so" | wc -l) > 5000)) || fail "the library that clashes is not like ours"
guest() {
  python3 "$repo/tests/install/guest.py" "$server" "$root/lib/libparamd.so" "$@"
}
guest paramd "$folder/clash.so" >/dev/null || fail "a library that is loaded later gets in the way"
guest "$folder/clash.so" paramd >/dev/null || fail "a library that was loaded before gets in the way"
LD_PRELOAD=$folder/clash.so LD_LIBRARY_PATH=$root/lib "$folder/by_pkg_config" "$server" >/dev/null ||
  fail "a library that the program has gets in the way"

for command in "python3 $repo/tests/install/guest.py $server $root/lib/libparamd.so paramd" \
  "$root/bin/paramctl --server=$server list"; do
  # shellcheck disable=SC2086  # a word each
  said=$("${grpc_environment[@]}" $command 2>&1) || fail "the environment of gRPC reaches this: $command: $said"
  [[ $said != *grpc* ]] || fail "the environment of gRPC reaches this: $command: $said"
done
if said=$(PARAMD_GRPC_ENVIRONMENT=1 "${grpc_environment[@]}" "$root/bin/paramctl" --server="$server" list 2>&1); then
  fail "PARAMD_GRPC_ENVIRONMENT=1 does not let the environment of gRPC in"
fi

kill "$daemon"
wait "$daemon" || fail "the daemon ended with $?"
daemon=
