"""Which of a cell's files a test left."""

from __future__ import annotations

import pytest

from orchestrator.domain.run_record import artifacts_of_test

FILES = (
    "unit.txt",
    "unit.test_a-plot.png",
    "unit.test_a_x-1_-log.txt",
    "unit.test_ab-p",
    "b.test_a-p",
)


@pytest.mark.parametrize(
    ("nodeid", "own"),
    [
        ("t/test_it.py::test_a", ["unit.test_a-plot.png"]),
        ("test_it.py::Test::test_a", ["unit.test_a-plot.png"]),
        ("test_it.py::test_a[x-1]", ["unit.test_a_x-1_-log.txt"]),
        ("test_it.py::test_none", []),
    ],
)
def test_a_folder_with_the_name_of_a_test_is_its_own(nodeid: str, own: list[str]) -> None:
    assert list(artifacts_of_test(FILES, "unit", nodeid)) == own
