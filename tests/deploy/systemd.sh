#!/bin/bash
# The unit is one that systemd takes and calls well confined, and the daemon takes its flags.
source "$(dirname "${BASH_SOURCE[0]}")/recipes.sh"

check_flags paramd.flags --flagfile="$repo/deploy/systemd/paramd.flags"
# The unit with the paths of this folder.
sed -e "s#/usr/local/bin/paramd#$paramd#" -e "s#/etc/paramd/paramd.flags#$repo/deploy/systemd/paramd.flags#" \
  "$repo/deploy/systemd/paramd.service" >"$scratch/paramd.service"
systemd-analyze verify --man=no --recursive-errors=no "$scratch/paramd.service" >"$scratch/complaints" 2>&1 ||
  { cat "$scratch/complaints" && exit 1; }
# verify is content with keys that it doesn't know, and says so.
if [[ -s $scratch/complaints ]]; then cat "$scratch/complaints" && exit 1; fi
# Exposure of at most 1.5 of 10.
systemd-analyze security --offline=yes --no-pager --threshold=15 "$scratch/paramd.service" >"$scratch/report" ||
  { cat "$scratch/report" && exit 1; }
