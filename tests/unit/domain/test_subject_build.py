"""Two builds of a subject with one name and one version."""

from __future__ import annotations

import pytest

from orchestrator.domain.cell import SubjectBuild, build_difference
from orchestrator.domain.versions import is_same_version

OLD = SubjectBuild("lib", "1.0", "aa", "11")


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (OLD, ""),
        (SubjectBuild("lib", "1.1", "bb", "22"), ""),
        (SubjectBuild("other", "1.0", "bb", "22"), ""),
        (SubjectBuild("lib", "1.0", "bb", "22"), "hold different files"),
        (SubjectBuild("lib", "1.0", "bb", ""), "its wheels are different files"),
        (SubjectBuild("lib", "1.0", "bb", "11"), ""),
        (SubjectBuild("lib", "1.0"), "only one of the runs had a wheel"),
    ],
)
def test_a_difference_is_named_where_the_version_hides_it(after: SubjectBuild, said: str) -> None:
    found = [build_difference(OLD, after), build_difference(after, OLD)]
    assert all(said in one if said else one == "" for one in found), found


def test_without_a_wheel_nothing_is_known_to_differ() -> None:
    bare = SubjectBuild("lib", "1.0")
    assert build_difference(bare, bare) == ""


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("1.0", "1.0.0", True),
        ("v1.10", "1.10", True),
        ("1.1", "1.10", False),
        ("1.0rc1", "1.0-RC.1", True),
        ("1.0rc1", "1.0", False),
        ("1.0", "1.0+dirty", True),
        ("1.0+cpu", "1.0+cu128", False),
        ("nightly", "1.0", False),
        ("nightly", "nightly", True),
    ],
)
def test_a_version_may_be_spelled_in_several_ways(one: str, other: str, *, is_same: bool) -> None:
    assert is_same_version(one, other) is is_same
    assert is_same_version(other, one) is is_same
