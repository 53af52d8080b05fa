#!/bin/bash
# The Dockerfile is in order, and the daemon takes the flags that the image gives it. There may be no engine to build it.
source "$(dirname "${BASH_SOURCE[0]}")/recipes.sh"

install_linters
readonly dockerfile=$repo/deploy/container/Dockerfile
"$linters/bin/hadolint" "$dockerfile"
mapfile -t flags < <(sed -n 's/^CMD //p' "$dockerfile" | python3 -c 'import json, sys; print(*json.load(sys.stdin), sep="\n")')
((${#flags[@]} > 0))
check_flags Dockerfile "${flags[@]}"
# What it runs is there.
while read -r script; do
  [[ -x $repo/$script ]] || { echo "the Dockerfile runs $script, which is not there" >&2 && exit 1; }
done < <(grep --only-matching 'scripts/[a-z_]*\.sh' "$dockerfile")
