"""Holds the cases of the core's tests on two systems side by side: the same cases, and each skip with its reason.

Arguments: ctest's JUnit files, first of the tests run natively, then of those run elsewhere.
"""

from __future__ import annotations

import argparse
import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

LINE = re.compile(r"^(pass|skip|FAIL)  (.+)$", re.MULTILINE)
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)


@dataclass
class Cases:
    """What the test programs of one system said: names of cases, those left out with their reasons."""

    ran: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    @property
    def names(self) -> set[str]:
        """Of all cases, run or not."""
        return self.ran | self.failed | set(self.skipped)


def read(file: Path) -> Cases:
    """The cases in a JUnit file of ctest.

    Raises:
        SystemExit: a program's output is missing or cut short.
    """
    cases = Cases()
    # ctest's own file, just written: no foreign XML.
    for program in ET.parse(file).getroot().iter("testcase"):
        name, output = program.get("name", ""), (program.findtext("system-out") or "").replace("\r", "")
        seen = 0
        for verdict, text in LINE.findall(output):
            seen += 1
            case, _, reason = text.partition(": ") if verdict == "skip" else (text, "", "")
            full = f"{name}: {case}"
            if verdict == "skip":
                cases.skipped[full] = reason
            else:
                (cases.ran if verdict == "pass" else cases.failed).add(full)
        summary = SUMMARY.search(output)
        if summary is None or seen != sum(map(int, summary.groups())):
            raise SystemExit(f"compare_cases.py: the output of '{name}' in {file} is not complete")
    return cases


def compare(here: Cases, there: Cases) -> list[str]:
    """What is wrong, one sentence each; a skip with a reason is not."""
    problems = [f"only native: {name}" for name in sorted(here.names - there.names)]
    problems += [f"only on the other system: {name}" for name in sorted(there.names - here.names)]
    problems += [f"failed: {name}" for name in sorted(here.failed | there.failed)]
    problems += [
        f"skipped without a reason: {name}"
        for cases in (here, there)
        for name, reason in sorted(cases.skipped.items())
        if not reason
    ]
    return problems if here.names else ["there is no case at all"]


def main() -> int:
    """Prints both counts and every skip; fails where the two differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("native", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("--name", default="Wine", help="the other system's name")
    arguments = parser.parse_args()
    here, there = read(arguments.native), read(arguments.other)
    for system, cases in (("native", here), (arguments.name, there)):
        print(f"{system}: {len(cases.names)} cases, {len(cases.ran)} passed, {len(cases.skipped)} skipped")
        for name, reason in sorted(cases.skipped.items()):
            print(f"  skipped: {name} ({reason})")
    problems = compare(here, there)
    for problem in problems:
        print(f"compare_cases.py: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
