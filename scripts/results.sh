#!/usr/bin/env bash
# Trains MNIST with every algorithm at its defaults, and writes the table into docs/algorithms.md.
#
#   scripts/results.sh [--epochs=N] [...]     arguments go to every run of scripts/demo.sh
set -euo pipefail
if [[ " $* " =~ \ --?help[\ =] ]]; then
  echo "usage: scripts/results.sh [--epochs=N] [...]; scripts/demo.sh --help tells the rest" >&2
  exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

algorithms=(downpour adag dynsgd adaptive_adag aeasgd eamsgd easgd averaging ensemble single)
for algorithm in "${algorithms[@]}"; do
  "$root/scripts/demo.sh" --algorithm="$algorithm" --epochs=12 --single=false --json="$out/$algorithm.json" "$@"
done

python3 - "$root/docs/algorithms.md" "$out" "${algorithms[@]}" <<'PY'
import json
import os
import re
import sys

page, out, algorithms = sys.argv[1], sys.argv[2], sys.argv[3:]
rows = [run for a in algorithms for run in json.load(open(os.path.join(out, a + ".json")))["runs"]]
lines = [
    "| algorithm | workers | window | epochs | updates | mean staleness | wall time | samples/s | test accuracy |",
    "|---|---|---|---|---|---|---|---|---|",
]
for r in rows:
    lines.append(
        f"| `{r['algorithm']}` | {r['workers']} | {r['window'] or '–'} | {r['epochs']} | {r['updates']:,} "
        f"| {r['mean_staleness']:.2f} | {r['wall_s']:.1f} s | {r['samples_per_s']:,.0f} "
        f"| {100 * r['test_accuracy']:.2f} % |"
    )
begin, end = "<!-- results:begin -->", "<!-- results:end -->"
text = open(page).read()
text = re.sub(f"{begin}.*{end}", lambda _: "\n".join([begin, *lines, end]), text, flags=re.S)
open(page, "w").write(text)
print("\n".join(lines))
PY
