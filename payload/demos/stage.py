"""Run the parts of a demonstration one after another."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence

import torch

from torchbridge import __version__, evidence
from torchbridge.device import describe, pick_device

RULE = "=" * 60
WORDS = {"passed": "PASS", "failed": "FAIL", "skipped": "SKIP"}

Part = tuple[str, Callable[[torch.device], None]]


class Skip(Exception):
    """The part cannot be shown here; the message says what is missing."""


def require(condition: bool, expected: str) -> None:
    """Fail this part unless the condition holds."""
    if not condition:
        raise AssertionError(f"expected {expected}")


def attempt(heading: str, show: Callable[[torch.device], None], device: torch.device) -> str:
    """Run one part; return `passed`, `failed` or `skipped`."""
    print(f"\n{RULE}\n{heading}\n{RULE}", flush=True)
    torch.manual_seed(0)
    try:
        show(device)
    except Skip as reason:
        print(f"[SKIPPED] {reason}")
        evidence.check(heading, "skipped", reason=str(reason))
        return "skipped"
    except Exception as error:  # the others still run; the exit code tells
        traceback.print_exc(file=sys.stdout)
        evidence.check(heading, False, reason=f"{type(error).__name__}: {error}")
        return "failed"
    evidence.check(heading, True)
    return "passed"


def show_all(title: str, parts: Sequence[Part]) -> int:
    """Run all parts; return 0 if none failed."""
    device = pick_device()
    print(f"{RULE}\n{title}\ntorchbridge v{__version__}\n{describe(device)}\n{RULE}")
    headings = [f"Demo {number}: {name}" for number, (name, _) in enumerate(parts, start=1)]
    outcomes = [
        attempt(heading, show, device) for heading, (_, show) in zip(headings, parts, strict=True)
    ]
    good, bad = outcomes.count("passed"), outcomes.count("failed")
    print(f"\n{RULE}\nResults: {good}/{len(outcomes)} demos passed")
    for heading, outcome in zip(headings, outcomes, strict=True):
        print(f"  [{WORDS[outcome]}] {heading}")
    print(f"{'Not all demos passed.' if bad else 'All demos completed!'}\n{RULE}")
    return 1 if bad else 0
