#!/usr/bin/env python3
"""Fails if a promise of docs/promises.md names no test, or one that is not there."""

import os
import re
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEAD = re.compile(r"^\| promise \| file \| test \|$|^\|[-|]+\|$")
ROW = re.compile(r"^\| .* \| `(?P<file>[^`]+)` \| (?P<test>[^|]+) \|$")
# What comes before a test's name, by its file's kind. Shell scripts have it anywhere but in comments.
BEFORE = {
    ".cc": r'^TEST_CASE(?:_METHOD)?\(\s*(?:\w+, )?\s*"',
    ".java": r"^  void ",
    ".py": r"^def ",
    ".sh": r"^[^#\n]*",
}


def has_test(path, test):
    path = os.path.join(REPO, path)
    before = BEFORE.get(os.path.splitext(path)[1])
    if before is None or not os.path.isfile(path):
        return False
    with open(path, encoding="utf-8") as file:
        # A literal may go on in the next line.
        text = re.sub(r'"\s*\n\s*"', "", file.read())
    return re.search(before + re.escape(test), text, re.MULTILINE) is not None


def main():
    wrong = rows = 0
    with open(os.path.join(REPO, "docs", "promises.md"), encoding="utf-8") as page:
        for line in page:
            line = line.rstrip("\n")
            if not line.startswith("|") or HEAD.match(line):
                continue
            rows += 1
            row = ROW.match(line)
            if not row:
                print(f"docs/promises.md: this names no test: {line}", file=sys.stderr)
            elif not has_test(row["file"], row["test"]):
                print(f"docs/promises.md: {row['file']} has no test '{row['test']}'", file=sys.stderr)
            else:
                continue
            wrong += 1
    if rows == 0:
        sys.exit("docs/promises.md: no promises found")
    return 1 if wrong else 0


sys.exit(main())
