#!/usr/bin/env python3
"""Counts the test cases of one run, and prints "PASSED FAILED SKIPPED".

    count_tests.py TIMES REPORT...

A REPORT is what `bazel test --build_event_json_file=REPORT` wrote, or JUnit's XML (*.xml). How long tests took is
appended to the file TIMES, as lines "SECONDS NAME".

Bazel's test cases are counted from the closing lines that Catch2 left in the tests' logs. A test that left none (it
crashed, ran out of time, or is no Catch2 test) counts as one, and so does one that could not be built. A test case that
says "skipped: NAME: WHY" (tests/support/skip.h) did not run here.
"""

import json
import re
import sys
import urllib.parse
import xml.etree.ElementTree

ALL_PASSED = re.compile(r"^All tests passed \(.*\bin (\d+) test cases?\)$", re.MULTILINE)
SOME_FAILED = re.compile(r"^test cases: +(\d+) \|(.*)$", re.MULTILINE)
NONE_RAN = re.compile(r"^No tests ran$", re.MULTILINE)
SKIPPED = re.compile(r"^skipped: (.*)$", re.MULTILINE)
# Catch2's --min-duration.
TOOK = re.compile(r"^(\d+\.\d+) s: (.*)$", re.MULTILINE)


def count_cases(log, ok):
    """(passed, failed, skipped) of one run of a test that ended with success or not."""
    failed = 0
    skipped = len(SKIPPED.findall(log))
    if none := NONE_RAN.search(log):
        passed = 0
    if all_passed := ALL_PASSED.findall(log):
        passed = int(all_passed[-1])
    elif some_failed := SOME_FAILED.findall(log):
        total, parts = int(some_failed[-1][0]), some_failed[-1][1]
        failed = sum(int(n) for n in re.findall(r"(\d+) failed(?! as expected)", parts))
        passed = total - failed
    elif not none:
        return (1, 0, 0) if ok else (0, 1, 0)
    # What fails outside of any test case, such as a leak that is found at the end.
    return (passed - skipped, failed if ok else max(failed, 1), skipped)


def count_bazel(report, times):
    runs = {}  # the last attempt of each (label, run, shard): (log, ok, seconds, or None of one from a cache)
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
                cached = result.get("cachedLocally") or result.get("executionInfo", {}).get("cachedRemotely")
                seconds = None if cached else int(result.get("testAttemptDurationMillis", 0)) / 1000
                key = (subject["label"], subject.get("run"), subject.get("shard"))
                runs[key] = (logs[0] if logs else None, result.get("status") in ("PASSED", "FLAKY"), seconds)
            elif kind == "testSummary":
                outcomes[subject["label"]] = event["testSummary"]["overallStatus"]

    passed = failed = skipped = 0
    counted = set()
    for (label, _, _), (uri, ok, seconds) in sorted(runs.items(), key=lambda run: run[0][0]):
        log = ""
        if uri:
            with open(urllib.parse.unquote(urllib.parse.urlparse(uri).path), encoding="utf-8", errors="replace") as file:
                log = file.read()
        case_passed, case_failed, case_skipped = count_cases(log, ok)
        passed += case_passed
        failed += case_failed
        skipped += case_skipped
        counted.add(label)
        if not ok:
            print(f"{label}: {case_failed} failed ({outcomes.get(label, 'FAILED')})", file=sys.stderr)
        for why in SKIPPED.findall(log):
            print(f"{label}: skipped: {why}", file=sys.stderr)
        if seconds is not None:
            cases = TOOK.findall(log)
            for case_seconds, name in cases:
                times.write(f"{case_seconds} {label}: {name}\n")
            if not cases:
                times.write(f"{seconds} {label}\n")
    for label in sorted(tests - counted):
        if outcomes.get(label) not in (None, "PASSED"):
            failed += 1
            print(f"{label}: {outcomes[label]}", file=sys.stderr)
    return (passed, failed, skipped)


def count_junit(report, times):
    passed = failed = skipped = 0
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}: {case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif (reason := case.find("skipped")) is not None:
            skipped += 1
            print(f"{name}: skipped: {reason.get('message')}", file=sys.stderr)
        else:
            passed += 1
        times.write(f"{case.get('time', '0').replace(',', '')} {name}\n")
    return (passed, failed, skipped)


def main(times_path, reports):
    with open(times_path, "a", encoding="utf-8") as times:
        counts = [(count_junit if report.endswith(".xml") else count_bazel)(report, times) for report in reports]
    print(*(sum(column) for column in zip(*counts, strict=True)))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
