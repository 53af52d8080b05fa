#!/bin/bash
# Builds the Python wheel, client/python/dist/paramd-VERSION-*.whl, with the jar in it. Installs what it builds with, if
# that is missing.
#
#   scripts/build_python.sh [--skip-jar]
#
#   --skip-jar  packs the jar that scripts/build_java.sh built last
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo
# shellcheck source=scripts/bazel.sh
source "$repo/scripts/bazel.sh"

case "$#:${1-}" in
  0: | 1:--skip-jar) ;;
  *) echo "usage: scripts/build_python.sh [--skip-jar]" >&2 && exit 2 ;;
esac
cd "$repo"
scripts/setup.sh --python
# Standard output is for the wheel's name; Maven writes its errors there.
if (($# == 0)); then run scripts/build_java.sh --skip-tests >&2; fi

version=$(sed -n 's/^version = "\(.*\)"/\1/p' client/python/pyproject.toml)
jar=client/java/target/paramd-$version.jar
if [[ ! -f $jar ]]; then
  echo "build_python: there is no $jar; run scripts/build_java.sh, and see that pom.xml has the version of pyproject.toml" >&2
  exit 1
fi
# In a copy: setuptools leaves its own files in the sources. Debian's, so that nothing is downloaded.
scratch=$(mktemp -d)
cp -r client/python/pyproject.toml client/python/paramd "$scratch"
cp "$jar" "$scratch/paramd/spark/paramd.jar"
run env --chdir="$scratch" /usr/bin/python3 -c 'from setuptools import build_meta; build_meta.build_wheel("dist")' \
  >"$scratch/log" 2>&1 || {
  cat "$scratch/log" >&2
  exit 1
}
rm -rf client/python/dist
mv "$scratch/dist" client/python/dist
ls client/python/dist/*.whl
