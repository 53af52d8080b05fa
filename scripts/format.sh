#!/bin/bash
# Formats the C and C++ in this repository.
#
#   scripts/format.sh [--check]     --check changes nothing: it names the files that are not formatted, and fails
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
mapfile -t -d '' files < <(find . -name '.?*' -prune -o -type f \( -name '*.c' -o -name '*.h' -o -name '*.cc' \) -print0)
case ${1-} in
  '') clang-format-14 -i "${files[@]}" ;;
  --check)
    unformatted=$(clang-format-14 --dry-run "${files[@]}" 2>&1 | sed -n 's/^\(.*\):[0-9]*:[0-9]*: warning: .*/\1/p' | sort -u)
    if [[ $unformatted ]]; then
      printf 'format: these files want scripts/format.sh:\n%s\n' "$unformatted" >&2
      exit 1
    fi
    ;;
  *) echo "usage: scripts/format.sh [--check]" >&2 && exit 2 ;;
esac
