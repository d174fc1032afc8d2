"""The correctness suites that may fail on a GPU, as targets of `benchmarks.gpu`."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "suites"
PREFIX = "correctness/"
GROUPS = {  # by what they prove; each pattern names files of `suites/`
    "kernels": ("kernel_cross_entropy", "kernel_experts", "kernel_g*", "kernel_quantise"),
    "moe": ("moe_arms", "moe_paths", "moe_waits", "moe_numeric"),
    "training": ("graphs", "train_graphed", "train_numeric"),
    "gpt2": ("gpt2_numeric_cache", "gpt2_numeric_decode"),
    "attention": ("attention_numeric*", "flash_attention", "flex_attention"),
    "fp8": ("fp8_native_numeric*", "fp8_training_numeric*"),
    "nvidia": ("nvidia_backend*",),
}
WORKERS = 6  # processes at most, where pytest-xdist is installed
LIMIT_S = 240.0
SHOWN = 20  # failed tests that are named
_WORD = re.compile(r"(?:^|\s)(PASSED|FAILED|ERROR|SKIPPED|XFAIL)(?:\s|$)", re.MULTILINE)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (suites/\S+)", re.MULTILINE)


def names() -> list[str]:
    """Return the names of the targets."""
    return [PREFIX + group for group in GROUPS]


def files(group: str) -> list[str]:
    """Return the suites of a group, relative to `payload/`.

    Raises:
        FileNotFoundError: a pattern matches no suite.
    """
    found = []
    for pattern in GROUPS[group]:
        matching = sorted(FOLDER.glob(f"test_{pattern}.py"))
        if not matching:
            raise FileNotFoundError(f"no suite is called test_{pattern}.py")
        found += [f"suites/{path.name}" for path in matching]
    return found


def words(target: str) -> list[str]:
    """Return the command line of a target."""
    command = [sys.executable, "-m", "pytest", "-v", "-rfE", "--tb=short", "-p", "no:cacheprovider"]
    if importlib.util.find_spec("xdist"):
        command += ["-n", str(min(WORKERS, os.cpu_count() or 1)), "--dist", "loadfile"]
    return command + files(target.removeprefix(PREFIX))


def row(target: str, output: str, why: str | None) -> dict[str, Any]:
    """Count the tests in pytest's output, which may be incomplete.

    `why` says what ended it other than its tests.
    """
    counts = dict.fromkeys(("PASSED", "FAILED", "ERROR", "SKIPPED"), 0)
    for word in _WORD.findall(output.partition("short test summary info")[0]):
        counts[word] = counts.get(word, 0) + 1
    found = {"target": target, "passed": counts["PASSED"], "skipped": counts["SKIPPED"]}
    found["failed"] = counts["FAILED"] + counts["ERROR"]
    found["failures"] = sorted(set(_FAILED.findall(output)))[:SHOWN]
    return found | ({"error": why} if why else {})
