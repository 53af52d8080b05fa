#!/bin/bash
# Builds paramd and installs it: the daemon, paramctl, the client library for C with its header and package files, and
# what a plugin is built with. Installs what it builds with, if that is missing.
#
#   scripts/install.sh [--prefix=DIR]       default: /usr/local; DESTDIR, if set, goes before it
#
#   bin/paramd, bin/paramctl                each one file that needs nothing but the system's C library
#   lib/libparamd.so*, lib/paramd/          with its own copies of gRPC, protobuf and Abseil; see docs/c.md
#   include/paramd/paramd.h, lib/pkgconfig/paramd.pc, lib/cmake/paramd/
#   include/paramd/plugin/                  the headers of algorithms, for plugins; they need Abseil's
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo
# shellcheck source=scripts/bazel.sh
source "$repo/scripts/bazel.sh"

usage() {
  echo "usage: scripts/install.sh [--prefix=DIR]" >&2
  exit 2
}

prefix=/usr/local
for argument in "$@"; do
  case $argument in
    --prefix=?*) prefix=${argument#*=} ;;
    *) usage ;;
  esac
done
[[ $prefix == /* ]] || prefix=$PWD/$prefix
root=${DESTDIR-}$prefix

"$repo/scripts/setup.sh" --packages
targets=(//server:paramd //client/cli:paramctl //client/c:libparamd.so)
run_bazel build --show_result=0 --ui_event_filters=-info "${targets[@]}" || {
  echo "install: the build failed; see above" >&2
  exit 1
}
bin=$(bazel_bin)
version=$(sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' "$repo/proto/version.h")

install -d "$root"/{bin,include/paramd/plugin/algorithms,lib/pkgconfig,lib/cmake/paramd}
install -s -m 755 "$bin/server/paramd" "$bin/client/cli/paramctl" "$root/bin/"
install -m 644 "$repo/client/c/paramd.h" "$root/include/paramd/"
install -m 644 "$repo"/algorithms/{algorithm,kernel,registry}.h "$root/include/paramd/plugin/algorithms/"
scratch=$root/lib/.paramd.new
rm -rf "$scratch"
install -d "$scratch"
"$repo/scripts/bundle_libraries.py" "$bin/client/c/libparamd.so" "$scratch"
# Those that are there are of another build, or another version.
rm -rf "$root/lib/paramd"
mv "$scratch/libparamd.so" "$root/lib/libparamd.so.$version"
mv "$scratch" "$root/lib/paramd"
scratch=
ln -sf "libparamd.so.$version" "$root/lib/libparamd.so.0"
ln -sf libparamd.so.0 "$root/lib/libparamd.so"

# package_file NAME FOLDER
package_file() {
  sed "s/@VERSION@/$version/g" "$repo/client/c/package/$1.in" >"$root/lib/$2/$1"
  chmod 644 "$root/lib/$2/$1"
}
package_file paramd.pc pkgconfig
package_file paramdConfig.cmake cmake/paramd
package_file paramdConfigVersion.cmake cmake/paramd

echo "paramd $version is in $root"
