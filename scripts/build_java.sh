#!/bin/bash
# Builds the jar for Java and Spark, client/java/target/paramd-VERSION.jar: the classes, the native client with every
# library that it needs but glibc's, and the daemon. Installs what it builds with, if that is missing.
#
#   scripts/build_java.sh [--skip-tests | --natives]
#
#   --skip-tests  does not run the tests
#   --natives     builds what is native alone, into client/java/target/natives
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo
# shellcheck source=scripts/bazel.sh
source "$repo/scripts/bazel.sh"

readonly natives=$repo/client/java/target/natives/paramd/native/linux-x86_64
readonly library=libparamd_jni.so
# Part of glibc.
readonly glibc='^(linux-vdso|ld-linux-x86-64|libc|libm|libdl|libpthread|librt)\.so'
# Part of many JVMs, which would load them before us. They are compatible with what was built for older ones.
readonly common='^(libstdc\+\+|libgcc_s|libz)\.so'

fail() {
  echo "build_java: $*" >&2
  exit 1
}

# Copies the library and all that it is linked with.
#
# The system's libraries get names of their own, after the content of all: the loader takes a library for one that is
# loaded already if the names are the same. And their symbols stay among them. So another version of this jar, or
# somebody else's gRPC in the same JVM, doesn't get in the way, and two copies of this one share theirs.
bundle() {
  local line name path tag renamed options file
  local -A paths=()
  while read -r line; do
    name=${line%% *}
    if [[ ${name##*/} =~ $glibc ]]; then continue; fi
    path=$(sed -n 's/.* => \(\/.*\) (0x.*/\1/p' <<<"$line")
    [[ $path ]] || fail "can't find $name, which $library needs; scripts/setup.sh --java installs it"
    paths[$name]=$path
  done < <(ldd "bazel-bin/client/java/jni/$library")
  tag=$(cat "${paths[@]}" | sha256sum | cut --characters=1-12)
  options=()
  for name in "${!paths[@]}"; do
    if [[ $name =~ $common ]]; then continue; fi
    options+=(--replace-needed "$name" "paramd-$tag-$name")
  done
  for name in "${!paths[@]}"; do
    renamed=$name
    [[ $name =~ $common ]] || renamed=paramd-$tag-$name
    file=$natives/$renamed
    install --mode=644 "${paths[$name]}" "$file"
    # Not in one go: patchelf 0.14 then confuses the names.
    patchelf --set-soname "$renamed" "$file"
    patchelf "${options[@]}" "$file"
    [[ $name =~ $common ]] || scripts/localize_symbols.py "$file"
  done
  strip --strip-unneeded -o "$natives/$library" "bazel-bin/client/java/jni/$library"
  chmod u+w "$natives/$library"
  patchelf "${options[@]}" "$natives/$library"
  (cd "$natives" && printf '%s\n' ./*.so* | sed 's|^\./||' >libraries.txt)
}

case "$#:${1-}" in
  0: | 1:--skip-tests | 1:--natives) ;;
  *) fail "usage: scripts/build_java.sh [--skip-tests | --natives]" ;;
esac

cd "$repo"
scripts/setup.sh --java
run_bazel build "//client/java/jni:$library" //server:paramd
# Maven copies natives there and never removes them: those of an earlier build would stay in the jar.
rm -rf "$natives" client/java/target/classes/paramd/native
mkdir -p "$natives"
bundle
strip --strip-unneeded -o "$natives/paramd" bazel-bin/server/paramd
if [[ ${1-} == --natives ]]; then exit; fi

version=$(sed -n '0,/<version>/s|.*<version>\(.*\)</version>.*|\1|p' client/java/pom.xml)
rm -f client/java/target/paramd-*.jar
# No half of a jar stays if this fails or is interrupted.
scratch=$repo/client/java/target/paramd-$version.jar
maven=(mvn --quiet --batch-mode --file client/java/pom.xml package)
if [[ ${1-} == --skip-tests ]]; then maven+=(-DskipTests); fi
run "${maven[@]}"
scratch=
ls "client/java/target/paramd-$version.jar"
