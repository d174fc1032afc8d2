"""Whether a run compares its subject with itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.domain.cell import RunSpec, is_own_baseline
from orchestrator.domain.matrix import Baseline, GitSource, PayloadSource, Subject
from tests.databases import MANIFEST, matrix

PAYLOAD = "d" * 64
GIT = GitSource(url="https://example.org/mylib.git", rev="v0.9")
PACKAGE = Subject(name="mylib", version="1.0", package="mylib==1.0")


def spec(
    baseline: Baseline | None,
    wheels: tuple[str | None, str | None] = (None, None),
    contents: tuple[str, str] = ("", ""),
    subject: Subject | None = None,
) -> RunSpec:
    asked = replace(matrix(1), baseline=baseline)
    return RunSpec(
        replace(asked, subject=subject) if subject else asked,
        MANIFEST,
        subject_digest=wheels[0],
        baseline_digest=wheels[1],
        subject_contents=contents[0],
        baseline_contents=contents[1],
    )


@pytest.mark.parametrize(
    ("run", "is_own"),
    [
        (spec(None, ("aa", None), ("11", "")), False),
        (spec(Baseline(wheel="old.whl"), ("aa", "aa")), True),
        (spec(Baseline(wheel="old.whl"), ("aa", "bb"), ("11", "11")), True),  # zipped again
        (spec(Baseline(git=GIT), ("aa", "bb"), ("11", "11")), True),
        (spec(Baseline(wheel="old.whl"), ("aa", "bb"), ("11", "22")), False),
        (spec(Baseline(wheel="old.whl"), ("aa", "bb")), False),  # neither is a wheel
        (spec(Baseline(wheel="old.whl"), (None, "bb"), ("", "22")), False),
        (spec(Baseline(payload=PayloadSource(path="../old")), (None, PAYLOAD)), True),
        (spec(Baseline(payload=PayloadSource(path="../old")), (None, "bb")), False),
        (spec(Baseline(package="mylib==1.0"), subject=PACKAGE), True),
        (spec(Baseline(package="mylib==0.9"), subject=PACKAGE), False),
        (spec(Baseline(package="mylib==1.0"), ("aa", None)), False),
    ],
)
def test_baseline_and_subject_are_the_same(run: RunSpec, *, is_own: bool) -> None:
    assert is_own_baseline(PAYLOAD, run) is is_own
