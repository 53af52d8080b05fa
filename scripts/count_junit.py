#!/usr/bin/env python3
"""Counts the test cases in JUnit's XML reports, and prints "PASSED FAILED".

    count_junit.py REPORT...
"""

import sys
import xml.etree.ElementTree

passed = failed = 0
for report in sys.argv[1:]:
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is None:
            passed += 1
print(passed, failed)
