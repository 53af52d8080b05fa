#!/usr/bin/env python3
"""Counts the test cases of one `bazel test`, and prints "PASSED FAILED".

    count_tests.py REPORT       what --build_event_json_file=REPORT wrote

Test cases are counted from the closing lines that Catch2 left in the tests' logs. A test that left none (it crashed, ran
out of time, or is no Catch2 test) counts as one, and so does one that could not be built.
"""

import json
import re
import sys
import urllib.parse

ALL_PASSED = re.compile(r"^All tests passed \(.*\bin (\d+) test cases?\)$", re.MULTILINE)
SOME_FAILED = re.compile(r"^test cases: +(\d+) \|(.*)$", re.MULTILINE)
NONE_RAN = re.compile(r"^No tests ran$", re.MULTILINE)


def count_cases(log, ok):
    """(passed, failed) of one run of a test that ended with success or not."""
    failed = 0
    if none := NONE_RAN.search(log):
        passed = 0
    if all_passed := ALL_PASSED.findall(log):
        passed = int(all_passed[-1])
    elif some_failed := SOME_FAILED.findall(log):
        total, parts = int(some_failed[-1][0]), some_failed[-1][1]
        failed = sum(int(n) for n in re.findall(r"(\d+) failed(?! as expected)", parts))
        passed = total - failed
    elif not none:
        return (1, 0) if ok else (0, 1)
    # What fails outside of any test case, such as a leak that is found at the end.
    return (passed, failed if ok else max(failed, 1))


def main(report):
    runs = {}  # the last attempt of each (label, run, shard): (log, ok)
    outcomes = {}
    tests = set()
    with open(report, encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            (kind, subject), = event["id"].items()
            if kind == "targetConfigured" and event.get("configured", {}).get("targetKind", "").endswith("_test rule"):
                tests.add(subject["label"])
            elif kind == "targetCompleted" and not event.get("completed", {}).get("success"):
                outcomes.setdefault(subject["label"], "could not be built")
            elif kind == "testResult":
                result = event["testResult"]
                logs = [o["uri"] for o in result.get("testActionOutput", []) if o["name"] == "test.log" and "uri" in o]
                key = (subject["label"], subject.get("run"), subject.get("shard"))
                runs[key] = (logs[0] if logs else None, result.get("status") in ("PASSED", "FLAKY"))
            elif kind == "testSummary":
                outcomes[subject["label"]] = event["testSummary"]["overallStatus"]

    passed = failed = 0
    counted = set()
    for (label, _, _), (uri, ok) in sorted(runs.items(), key=lambda run: run[0][0]):
        log = ""
        if uri:
            with open(urllib.parse.unquote(urllib.parse.urlparse(uri).path), encoding="utf-8", errors="replace") as file:
                log = file.read()
        case_passed, case_failed = count_cases(log, ok)
        passed += case_passed
        failed += case_failed
        counted.add(label)
        if not ok:
            print(f"{label}: {case_failed} failed ({outcomes.get(label, 'FAILED')})", file=sys.stderr)
    for label in sorted(tests - counted):
        if outcomes.get(label) not in (None, "PASSED"):
            failed += 1
            print(f"{label}: {outcomes[label]}", file=sys.stderr)
    print(passed, failed)


if __name__ == "__main__":
    main(sys.argv[1])
