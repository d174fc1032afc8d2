"""Two builds of a subject with one name and one version."""

from __future__ import annotations

import pytest

from orchestrator.domain.cell import SubjectBuild, build_difference

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
