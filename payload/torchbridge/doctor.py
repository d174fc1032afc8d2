"""What a machine has and lacks, by its 14 diagnostics.

Run: `python -m torchbridge.doctor`. A warning is about something optional; the exit code is 1 if
anything failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import torchbridge
from torchbridge.device import describe, pick_device
from torchbridge.diagnostics import DIAGNOSTICS, Patient
from torchbridge.hardware import probe
from torchbridge.validation.findings import FAIL, PASS, WARNING, Report, examine

SIGNS = {PASS: "+", WARNING: "!", FAIL: "x"}


def diagnose(
    categories: Sequence[str] = tuple(DIAGNOSTICS), patient: Patient | None = None
) -> list[Report]:
    """One report per category, by default all of them on this machine.

    Raises:
        ValueError: there is no such category.
    """
    for category in categories:
        if category not in DIAGNOSTICS:
            raise ValueError(f"category must be one of {', '.join(DIAGNOSTICS)}, got {category!r}")
    if patient is None:
        device = pick_device()
        patient = Patient(device, probe(device))
    return [
        examine(
            category,
            {
                name: lambda check=check: check(patient)
                for name, check in DIAGNOSTICS[category].items()
            },
        )
        for category in categories
    ]


def show(reports: Sequence[Report]) -> None:
    """For a person: one line per diagnostic, and what to do where something is amiss."""
    for report in reports:
        print(f"\n{report.title.capitalize()}")
        for finding in report:
            print(f"  [{SIGNS[finding.status]}] {finding.name}: {finding.message}")
            if finding.recommendation:
                print(f"      -> {finding.recommendation}")
    counts = {s: sum(len(report.names(s)) for report in reports) for s in SIGNS}
    total = sum(counts.values())
    print(f"\n{counts[PASS]}/{total} passed, {counts[WARNING]} warnings, {counts[FAIL]} failed")


def main(arguments: list[str] | None = None) -> int:
    """All diagnostics; 1 if one failed."""
    parser = argparse.ArgumentParser(description="What this machine has and lacks")
    parser.add_argument("--category", choices=DIAGNOSTICS, action="append")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(arguments)
    reports = diagnose(options.category or tuple(DIAGNOSTICS))
    if options.json:
        print(json.dumps([report.to_dict() for report in reports], indent=2))
    else:
        print(f"torchbridge {torchbridge.__version__} on {describe(pick_device())}")
        show(reports)
    return 0 if all(report.ok for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
