#!/bin/bash
# Builds the jar for Java and Spark, client/java/target/paramd-VERSION.jar: the classes, the native client with every
# library that it needs but glibc's, and the daemon. Installs what it builds with, if that is missing.
#
#   scripts/build_java.sh [--skip-tests | --install | --natives]
#
#   without any   tests it, too, and packs -sources.jar and -javadoc.jar beside it
#   --skip-tests  the jar alone
#   --install     all three, without tests, also into Maven's local repository, as io.paramd:paramd:VERSION
#   --natives     builds what is native alone, into client/java/target/natives
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo
# shellcheck source=scripts/bazel.sh
source "$repo/scripts/bazel.sh"

readonly natives=$repo/client/java/target/natives/paramd/native/linux-x86_64
readonly library=libparamd_jni.so

case "$#:${1-}" in
  0: | 1:--skip-tests | 1:--install | 1:--natives) ;;
  *) echo "usage: scripts/build_java.sh [--skip-tests | --install | --natives]" >&2 && exit 2 ;;
esac

cd "$repo"
scripts/setup.sh --java
run_bazel build "//client/java/jni:$library" //server:paramd
# Maven copies natives there and never removes them: those of an earlier build would stay in the jar.
rm -rf "$natives" client/java/target/classes/paramd/native
mkdir -p "$natives"
scripts/bundle_libraries.py --runtime "bazel-bin/client/java/jni/$library" "$natives"
(cd "$natives" && printf '%s\n' ./*.so* | sed 's|^\./||' >libraries.txt)
strip --strip-unneeded -o "$natives/paramd" bazel-bin/server/paramd
if [[ ${1-} == --natives ]]; then exit; fi

version=$(sed -n '0,/<version>/s|.*<version>\(.*\)</version>.*|\1|p' client/java/pom.xml)
rm -f client/java/target/paramd-*.jar
# No half of a jar stays if this fails or is interrupted.
scratch=$repo/client/java/target/paramd-$version.jar
maven=(mvn --quiet --batch-mode --file client/java/pom.xml)
case ${1-} in
  --skip-tests) maven+=(package -DskipTests) ;;
  --install) maven+=(install -DskipTests -Pdocumented) ;;
  *) maven+=(package -Pdocumented) ;;
esac
run "${maven[@]}"
scratch=
ls "client/java/target/paramd-$version.jar"
