"""Which runs tested one subject, whatever their matrices call it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.application.gather_evidence import is_of_one_subject
from orchestrator.domain.cell import RunSpec
from orchestrator.domain.matrix import GitSource, Subject
from tests.databases import MANIFEST, matrix


def spec(
    name: str = "mylib", version: str = "1.0", *, wheel: str = "", contents: str = "", rev: str = ""
) -> RunSpec:
    git = GitSource(url="https://example.org/mylib.git", rev=rev) if rev else None
    asked = replace(matrix(1), subject=Subject(name=name, version=version, git=git))
    return RunSpec(asked, MANIFEST, subject_digest=wheel or None, subject_contents=contents)


FAILED = spec(wheel="aa", contents="11")


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (FAILED, True),
        (spec(wheel="bb", contents="11"), True),  # zipped again
        (spec("MyLib", "1.0.0", wheel="aa"), True),
        (spec(wheel="bb", contents="22"), False),  # a fixed one of the same version
        (spec(rev="abc"), False),
        (spec(), True),  # the payload itself, under the name of the wheel that failed
        (spec("MYLIB", "1.0.0"), True),
        (spec(version="1.1"), False),
        (spec("other"), False),
    ],
)
def test_a_wheel_is_told_apart_by_what_it_holds_and_a_name_by_nothing(
    other: RunSpec, is_same: bool
) -> None:
    assert is_of_one_subject(FAILED, other) is is_of_one_subject(other, FAILED) is is_same


def test_two_payloads_that_are_their_own_subjects_are_told_apart_by_their_digests() -> None:
    assert not is_of_one_subject(spec(), spec())
    assert is_of_one_subject(spec(version="nightly", wheel="aa"), spec(version="nightly"))
