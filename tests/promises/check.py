#!/usr/bin/env python3
"""Fails if a test that docs/promises.md names is not there."""

import os
import re
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROW = re.compile(r"^\| .* \| `(?P<file>[^`]+)` \| (?P<test>.+) \|$")


def text_of(path):
    with open(os.path.join(REPO, path), encoding="utf-8") as file:
        # A literal may go on in the next line.
        return re.sub(r'"\s*\n\s*"', "", file.read())


def main():
    missing = rows = 0
    with open(os.path.join(REPO, "docs", "promises.md"), encoding="utf-8") as page:
        for line in page:
            if not (row := ROW.match(line.rstrip("\n"))):
                continue
            rows += 1
            path, test = row["file"], row["test"]
            if not os.path.isfile(os.path.join(REPO, path)) or test not in text_of(path):
                print(f"docs/promises.md: {path} has no test '{test}'", file=sys.stderr)
                missing += 1
    if rows == 0:
        sys.exit("docs/promises.md: no promises found")
    return 1 if missing else 0


sys.exit(main())
