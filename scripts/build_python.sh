#!/bin/bash
# Builds the Python wheel, client/python/dist/paramd-VERSION-*.whl, with the jar in it.
#
#   scripts/build_python.sh [--skip-jar]
#
#   --skip-jar  packs the jar that scripts/build_java.sh built last
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly repo
readonly python=$repo/.cache/python
cd "$repo"

case "$#:${1-}" in
  0:) scripts/build_java.sh --skip-tests >/dev/null ;;
  1:--skip-jar) ;;
  *)
    echo "build_python: usage: scripts/build_python.sh [--skip-jar]" >&2
    exit 1
    ;;
esac

version=$(sed -n 's/^version = "\(.*\)"/\1/p' client/python/pyproject.toml)
jar=client/java/target/paramd-$version.jar
if [[ ! -f $jar ]]; then
  echo "build_python: there is no $jar; run scripts/build_java.sh, and see that pom.xml has the version of pyproject.toml" >&2
  exit 1
fi
[[ -x $python/bin/pip ]] || python3 -m venv "$python"
cp "$jar" client/python/paramd/spark/paramd.jar
rm -rf client/python/build client/python/dist
"$python/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir client/python/dist ./client/python
rm -rf client/python/build client/python/paramd.egg-info
ls client/python/dist/*.whl
