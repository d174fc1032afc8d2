"""Demos that announce their parts and never say how they went."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.adapters.result_parsers.demo_output import DemoHeadings
from orchestrator.domain.parsed_results import (
    ParsedCheck,
    ParsedEnd,
    ParsedFallback,
    ParsedItem,
    ParsedMetric,
    ParsedProblem,
    ParsedVersion,
)
from tests.unit.result_parsers.demo_logs import golden, written

HAPPY = "All demos completed!\n"


def _read(folder: Path, text: str) -> list[ParsedItem]:
    return list(DemoHeadings().read(written(folder, text)))


def _checks(said: list[ParsedItem]) -> list[tuple[str, str]]:
    return [(one.name, one.outcome) for one in said if isinstance(one, ParsedCheck)]


def _errors(said: list[ParsedItem]) -> list[str]:
    return [one.message for one in said if isinstance(one, ParsedProblem) and one.level == "error"]


def test_the_moe_demo_has_eight_parts_whose_passing_is_inferred() -> None:
    said = list(DemoHeadings().read(golden("moe_demo.txt")))
    checks = [one for one in said if isinstance(one, ParsedCheck)]
    assert [c.outcome for c in checks] == ["passed"] * 8
    assert all(c.inferred for c in checks)
    assert checks[0].name == "Demo 1: Basic MoE Layer"
    assert said[-1] == ParsedEnd(0, inferred=True)
    assert _errors(said) == []
    assert [one for one in said if isinstance(one, ParsedFallback)] == []
    assert [one for one in said if isinstance(one, ParsedVersion)] == [
        ParsedVersion("kernel_pytorch", "0.4.6")
    ]


def test_the_moe_demo_says_that_it_is_slower_than_a_plain_layer() -> None:
    said = list(DemoHeadings().read(golden("moe_demo.txt")))
    part = "Demo 8: Performance Comparison"
    assert [one for one in said if isinstance(one, ParsedMetric)] == [
        ParsedMetric(f"{part}/Standard FFN/Time", (30.4,), "ms", "lower", {}),
        ParsedMetric(f"{part}/MoE (8 experts, top-2)/Time", (105.46,), "ms", "lower", {}),
        ParsedMetric(
            f"{part}/MoE (8 experts, top-2)/Time ratio",
            (3.5,),
            "x",
            "lower",
            {"baseline": "Standard FFN"},
        ),
    ]


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("Error: no such kernel", "Error: no such kernel"),
        ("  ❌ Gradient flow", "❌ Gradient flow"),
        ("FAILED after 3 tries", "FAILED after 3 tries"),
        ('Traceback (most recent call last):\n  File "x.py", line 1\n    f()\nValueError: bad',
         "ValueError: bad"),
        ("torch.OutOfMemoryError: CUDA out of memory",
         "torch.OutOfMemoryError: CUDA out of memory"),
    ],
)  # fmt: skip
def test_trouble_below_a_heading_fails_it(tmp_path: Path, trouble: str, reason: str) -> None:
    said = _read(tmp_path, f"Demo 1: A\n{trouble}\nDemo 2: B\nfine\n{HAPPY}")
    assert _checks(said) == [("Demo 1: A", "failed"), ("Demo 2: B", "passed")]
    assert next(one for one in said if isinstance(one, ParsedCheck)).reason == reason


@pytest.mark.parametrize(
    "line", ["  Relative error: 2.68%", "Error: 1e-5", "   Transformer Engine: ❌", "ERROR = 0.01"]
)
def test_what_is_no_trouble(tmp_path: Path, line: str) -> None:
    assert _checks(_read(tmp_path, f"Demo 1: A\n{line}\n{HAPPY}")) == [("Demo 1: A", "passed")]


def test_without_a_happy_end_the_last_part_failed_and_no_end_is_inferred(tmp_path: Path) -> None:
    said = _read(tmp_path, "Demo 1: A\nDemo 2: B\nworking\n")
    assert _checks(said) == [("Demo 1: A", "passed"), ("Demo 2: B", "failed")]
    assert not any(isinstance(one, ParsedEnd) for one in said)
    assert _errors(said) == ["it never says that it ended"]


def test_an_end_with_failures_is_no_happy_one(tmp_path: Path) -> None:
    said = _read(tmp_path, "Demo 1: A\nAll demos completed with 1 failure\n")
    assert not any(isinstance(one, ParsedEnd) for one in said)


def test_trouble_after_the_happy_end_is_an_end_that_failed(tmp_path: Path) -> None:
    said = _read(tmp_path, f"Demo 1: A\n{HAPPY}Segmentation fault (core dumped)\n")
    assert said[-1] == ParsedEnd(1, detail="Segmentation fault (core dumped)", inferred=True)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (f"Demo 1: A\nDemo 3: C\n{HAPPY}", "2"),
        (f"Demo 1/3: A\nDemo 2/3: B\n{HAPPY}", "3"),
        ("Example 2: B\nAll 3 examples finished\n", "1, 3"),
    ],
)
def test_a_number_that_is_not_there_is_an_error(tmp_path: Path, text: str, missing: str) -> None:
    assert _errors(_read(tmp_path, text)) == [f"no heading has the number {missing}"]


def test_how_sure_it_is(tmp_path: Path) -> None:
    dialect = DemoHeadings()
    assert dialect.match(golden("moe_demo.txt")) == 0.8
    assert dialect.match(golden("fp8_demo.txt")) == 0
    assert dialect.match(written(tmp_path, "Demo 1: A\nDemo 2: B\n")) == 0.55
    assert dialect.match(written(tmp_path, "Demo 1: A\n")) == 0.4
    assert dialect.match(written(tmp_path, "The demo 1 is fine\n")) == 0
