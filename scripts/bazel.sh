# shellcheck shell=bash disable=SC2154
# Sourced by scripts that set $repo: programs, and Bazel, such that nothing of them outlives the script. Bazel's client
# starts a server that stays; this one goes with the script, unless it was there before.

bazel_used=
child_pid=
# What the script makes for itself, or has only half made: a file or folder that is removed at exit.
scratch=

# The comment at the script's begin, for its --help.
print_head() { sed --quiet '2,/^set/ { /^#/ s/^# \?//p }' "$0"; }

# run COMMAND ARGUMENT...: such that a signal to this script ends it too.
run() {
  local status=0
  "$@" </dev/null &
  child_pid=$!
  wait "$child_pid" || status=$?
  child_pid=
  return "$status"
}

# run_bazel COMMAND ARGUMENT...: `bazel COMMAND ARGUMENT...` in the repository, in the configuration that all scripts share.
run_bazel() {
  if ! command -v bazel >/dev/null; then
    echo "${0##*/}: there is no Bazel; scripts/setup.sh --packages installs it" >&2
    return 127
  fi
  bazel_used=1
  run start_bazel "$@"
}

# The server inherits open files: it gets none but the standard ones. In a session of its own, so that Ctrl-C reaches
# this script alone, which passes it on.
start_bazel() {
  cd "$repo" || exit
  for fd in /proc/self/fd/*; do
    fd=${fd##*/}
    if ((fd > 2)); then eval "exec $fd>&-"; fi
  done
  case $1 in
    build | info | test) set -- "$1" --config=joined "${@:2}" ;;
  esac
  exec setsid bazel "$@"
}

# Says where the last build left what it made.
bazel_bin() {
  # Bazel chats on standard error; a second time if something is wrong.
  run_bazel info bazel-bin 2>/dev/null || run_bazel info bazel-bin
}

# When a process was started, in ticks since the system was.
started_at() {
  local stat
  stat=$(<"/proc/$1/stat")
  stat=${stat##*) }
  cut --delimiter=' ' --fields=20 <<<"$stat"
}

# Called at exit; may be called before.
stop_bazel() {
  local server
  [[ $bazel_used ]] || return 0
  server=$(run_bazel info server_pid 2>/dev/null) || return 0
  if (($(started_at "$server") >= $(started_at $$))); then run_bazel shutdown; fi
  bazel_used=
}

interrupt() {
  if [[ $child_pid ]]; then
    kill -TERM "$child_pid" 2>/dev/null || true
    wait "$child_pid" || true
  fi
  exit "$1"
}

trap 'trap "" INT TERM; stop_bazel; if [[ $scratch ]]; then rm -rf "$scratch"; fi' EXIT
trap 'interrupt 130' INT
trap 'interrupt 143' TERM
