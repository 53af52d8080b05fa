# shellcheck shell=bash disable=SC2154
# Sourced by scripts that set $repo: Bazel, such that nothing of it outlives the script. Bazel's client starts a server
# that stays; this one goes with the script, unless it was there before.

bazel_used=
bazel_pid=
# A folder of the script's own, if it makes one; removed at exit.
scratch=

# run_bazel ARGUMENT...: `bazel ARGUMENT...` in the repository. The server inherits open files: it gets none but the
# standard ones. In a session of its own, so that Ctrl-C reaches this script alone, which passes it on.
run_bazel() {
  local status=0
  bazel_used=1
  (
    cd "$repo" || exit
    for fd in /proc/self/fd/*; do
      fd=${fd##*/}
      if ((fd > 2)); then eval "exec $fd>&-"; fi
    done
    exec setsid bazel "$@"
  ) </dev/null &
  bazel_pid=$!
  wait "$bazel_pid" || status=$?
  bazel_pid=
  return "$status"
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

interrupt_bazel() {
  if [[ $bazel_pid ]]; then
    kill -TERM "$bazel_pid" 2>/dev/null || true
    wait "$bazel_pid" || true
  fi
  exit "$1"
}

trap 'trap "" INT TERM; stop_bazel; if [[ $scratch ]]; then rm -rf "$scratch"; fi' EXIT
trap 'interrupt_bazel 130' INT
trap 'interrupt_bazel 143' TERM
