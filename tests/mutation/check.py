#!/usr/bin/env python3
"""Removes the checks of what peers send and say they are, one at a time, and fails unless a test fails without each.

    tests/mutation/check.py [PART OF A LINE OF checks.txt]...

All of it takes as long as so many small builds. It works on a copy of the sources, .cache/mutation.
"""

import os
import re
import shutil
import subprocess
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COPY = os.path.join(REPO, ".cache", "mutation")
LIST = os.path.join(REPO, "tests", "mutation", "checks.txt")
TESTS_FAILED = 3  # bazel's exit code


def copy_sources():
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=REPO,
                            check=True, capture_output=True, text=True).stdout
    wanted = {path for path in listed.split("\0") if os.path.isfile(os.path.join(REPO, path))}
    if os.path.isfile(os.path.join(REPO, "user.bazelrc")):
        wanted.add("user.bazelrc")
    for folder, _, files in os.walk(COPY):
        for file in files:
            path = os.path.relpath(os.path.join(folder, file), COPY)
            if path not in wanted and not path.startswith("bazel-"):
                os.unlink(os.path.join(COPY, path))
    for path in wanted:
        os.makedirs(os.path.dirname(os.path.join(COPY, path)), exist_ok=True)
        shutil.copyfile(os.path.join(REPO, path), os.path.join(COPY, path))
        shutil.copymode(os.path.join(REPO, path), os.path.join(COPY, path))


def bazel(*arguments):
    return subprocess.run(["bazel", *arguments], cwd=COPY, check=False, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)


def run_tests(tests):
    return bazel("test", "--test_timeout=120", "--test_output=summary", *tests)


def without(source, accepts, beginning):
    """The source with the condition of an `if` that begins so made one that never refuses, or None if there is not one
    such condition."""
    found = list(re.finditer(r"\bif \(" + re.escape(beginning).replace(r"\ ", r"\s+"), source))
    if len(found) != 1:
        return None
    begin = source.index("(", found[0].start()) + 1
    end, depth = begin, 1
    while depth > 0:
        depth += {"(": 1, ")": -1}.get(source[end], 0)
        end += 1
    initial, _, condition = source[begin:end - 1].rpartition("; ")
    constant = "|| true" if accepts else "&& false"
    return f"{source[:begin]}{initial}{'; ' if initial else ''}({condition}) {constant}{source[end - 1:]}"


def read_list(wanted):
    checks = []
    with open(LIST, encoding="utf-8") as lines:
        for line in lines:
            line = line.strip()
            if not line or line.startswith("#") or (wanted and not any(part in line for part in wanted)):
                continue
            check, _, tests = line.rpartition(" => ")
            path, verb, beginning = check.split(" ", 2)
            checks.append((line, path, verb == "accepts", beginning, tests.split()))
    return checks


def main(wanted):
    checks = read_list(wanted)
    copy_sources()
    wrong = []
    unchanged = run_tests(sorted({test for check in checks for test in check[-1]}))
    if unchanged.returncode != 0:
        print(unchanged.stdout + unchanged.stderr, file=sys.stderr)
        sys.exit("mutation: the tests do not pass on the sources as they are")
    for line, path, accepts, beginning, tests in checks:
        with open(os.path.join(REPO, path), encoding="utf-8") as file:
            source = file.read()
        mutated = without(source, accepts, beginning)
        if mutated is None:
            wrong.append(f"not one such condition (it was changed: change checks.txt too): {line}")
        else:
            with open(os.path.join(COPY, path), "w", encoding="utf-8") as file:
                file.write(mutated)
            result = run_tests(tests)
            with open(os.path.join(COPY, path), "w", encoding="utf-8") as file:
                file.write(source)
            if result.returncode == 0:
                wrong.append(f"no test fails without it: {line}")
            elif result.returncode != TESTS_FAILED:
                print(result.stdout + result.stderr, file=sys.stderr)
                wrong.append(f"it does not build without it: {line}")
            else:
                print(f"caught: {line}", flush=True)
                continue
        print(wrong[-1], file=sys.stderr, flush=True)
    print(f"{len(checks) - len(wrong)} of {len(checks)} removed checks are caught")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    finally:
        if os.path.isdir(COPY):
            bazel("shutdown")
