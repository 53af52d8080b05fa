#!/bin/bash
# Fails if Bazel would allow a dependency from one folder to another that the architecture forbids; see docs/architecture.md.
# It asks for what may be seen, not for what is used, so that the first wrong use is an error of the build.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly repo
# shellcheck source=scripts/bazel.sh
source "$repo/scripts/bazel.sh"

# Folder, and the folders that none of its packages may see.
readonly directions=(
  "flags: algorithms proto shm state server client examples tests bench"
  "files: algorithms proto shm state server client examples tests bench"
  "sync: algorithms proto shm state server client examples tests bench"
  "security: algorithms proto shm state server client examples tests bench"
  "process: algorithms proto shm state server client examples tests bench"
  "algorithms: proto shm state server client examples tests bench"
  "proto: algorithms shm state server client examples tests bench"
  "shm: algorithms proto state server client examples tests bench"
  "state: algorithms shm server client examples tests bench"
  "server: client examples tests bench"
  "client: server examples tests bench"
  "examples: server client/cli tests bench"
  "bench: tests"
)
# The daemon's binary is started by others, and examples start it.
readonly exceptions='//server:paramd'

scratch=$(mktemp -d)
wrong=0

complain() {
  echo "visibility: $*" >&2
  wrong=1
}

# Asks Bazel; the result is in $result.
query() {
  if ! run_bazel query --noshow_progress "$@" >"$scratch/answer" 2>"$scratch/errors"; then
    cat "$scratch/errors" >&2
    complain "bazel query failed"
  fi
  result=$(<"$scratch/answer")
}

# The rules out of set $2 that package $1 may depend on.
query_visible() {
  query "visible(//$1:BUILD.bazel, kind(rule, $2)) except set($exceptions)"
}

# The packages in folder $1.
packages_in() {
  grep "^$1\(/\|\$\)" <<<"$packages" || true
}

query --output=package //...
packages=$result

# Else the checks below would say nothing whatever is visible.
query_visible server //algorithms:algorithm
[[ $result ]] || complain "server may not depend on //algorithms:algorithm, but must"

for direction in "${directions[@]}"; do
  targets=
  for folder in ${direction#*:}; do
    if [[ $(packages_in "$folder") ]]; then targets+="${targets:+ + }//$folder/..."; fi
  done
  for package in $(packages_in "${direction%%:*}"); do
    query_visible "$package" "$targets"
    [[ -z $result ]] || complain "$package may not depend on these, but can:" "${result//$'\n'/ }"
  done
done

for package in algorithms sync; do
  query_visible "$package" "//bazel/system:grpc + //bazel/system:protobuf_lite"
  [[ -z $result ]] || complain "$package may not depend on these, but can:" "${result//$'\n'/ }"
done

query 'somepath(//server:core, //bazel/system:grpc)'
[[ -z $result ]] || complain "the server's core may not depend on gRPC, but does:" "${result//$'\n'/ }"

query 'somepath(attr(tags, "[\[ ]tsan[,\]]", tests(//...)), //bazel/system:grpc)'
[[ -z $result ]] || complain "gRPC is not built for ThreadSanitizer, but a test under it depends on it:" "${result//$'\n'/ }"

exit "$wrong"
