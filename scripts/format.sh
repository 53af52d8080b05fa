#!/bin/bash
# Formats the C and C++ in this repository.
#
#   scripts/format.sh [--check]     --check changes nothing: it names the files that are not formatted, and fails
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly formatter=clang-format-14
case "$#:${1-}" in
  0: | 1:--check) ;;
  *) echo "usage: scripts/format.sh [--check]" >&2 && exit 2 ;;
esac
if ! command -v "$formatter" >/dev/null; then
  echo "format: there is no $formatter; scripts/setup.sh --packages installs it" >&2
  exit 1
fi
mapfile -t -d '' files < <(find . -name '.?*' -prune -o -type f \( -name '*.c' -o -name '*.h' -o -name '*.cc' \) -print0)
if (($# == 0)); then
  "$formatter" -i "${files[@]}"
  exit
fi
warnings=$("$formatter" --dry-run "${files[@]}" 2>&1) || {
  printf '%s\n' "$warnings" >&2
  exit 1
}
unformatted=$(sed -n 's/^\(.*\):[0-9]*:[0-9]*: warning: .*/\1/p' <<<"$warnings" | sort -u)
if [[ $unformatted ]]; then
  printf 'format: these files want scripts/format.sh:\n%s\n' "$unformatted" >&2
  exit 1
fi
