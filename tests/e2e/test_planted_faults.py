"""A small sample of `benchmarks/planted_faults.py`: faults of each kind, for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.planted_faults import Score, bisect_round, machine_round, mixed_round, run
from tests.e2e.home import a_home

PAYLOAD = """schema = 1
name = "calculator"
version = "{version}"
[[job]]
id = "suite"
kind = "suite"
pytest = ["test_calculator.py"]
[[job]]
id = "{extra}"
kind = "suite"
pytest = ["test_more.py"]
"""
MATRIX = """apiVersion: seatrial/v1
kind: Matrix
metadata: {name: calculator}
subject: {name: calculator, version: "2"}
baseline: {payload: {path: before}}
payload: {path: now}
limits: {max_minutes: 30}
platforms:
  - {id: here, provider: local}
jobs:
  - {select: "*"}
"""
TESTS = """
import calculator
def test_add():
    assert calculator.add(2, 2) == 4
def test_fine():
    pass
"""
NEW = """
def test_new():
    assert calculator.add(1, 1) == 2
"""
MORE = """
def test_more():
    import calculator
    assert calculator.add(3, 3) == 6
"""


def payload(folder: Path, *, version: str, extra: str, tests: str, wrong: str = "") -> None:
    folder.mkdir(parents=True)
    (folder / "payload.toml").write_text(PAYLOAD.format(version=version, extra=extra))
    (folder / "calculator.py").write_text(f"def add(a, b):\n    return a + b{wrong}\n")
    (folder / "test_calculator.py").write_text(tests)
    (folder / "test_more.py").write_text(MORE)


def test_a_subject_a_package_and_flaky_tests_are_told_apart(tmp_path):
    score = Score()
    mixed_round(tmp_path, score, each=1, number=0)
    assert score.wrong() == 0, score.tell()
    assert score.blamed["subject"] == {"subject": 1}
    assert score.blamed["dependency"] == {"dependency": 1}


@pytest.mark.needs_sshd
def test_a_machine_that_computes_wrong_is_found_by_a_second_one(tmp_path):
    score = Score()
    machine_round(tmp_path, score, each=1)
    assert score.blamed == {"machine": {"machine": 1}}


def test_a_payload_is_tried_against_the_one_before_it(tmp_path):
    """What the payload before does not have proves nothing: no test, and no job of that name."""
    payload(tmp_path / "before", version="1", extra="old", tests=TESTS)
    payload(tmp_path / "now", version="2", extra="more", tests=TESTS + NEW, wrong=" + 1")
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(MATRIX)
    with a_home(tmp_path / "home") as home:
        red = run(home, str(matrix), "--diagnose")
        found = home.get(f"/runs/{red['id']}/cells/here/retests")
        shown = " ".join(home.seatrial("show", red["id"]).split())
        report = (home.path / "runs" / red["id"] / "report" / "SUMMARY.md").read_text()
    answers = {one["nodeid"].rpartition("::")[2]: one for one in found["attributions"]}
    assert {name: one["answer"] for name, one in answers.items()} == {
        "test_add": "subject",
        "test_new": "unknown",
        "test_more": "unknown",
    }, found
    tried = "failed 6 of 6 again; passed 4 of 4 with the baseline payload"
    told = {one["nodeid"].rpartition("::")[2]: one["tried"] for one in red["diagnosed"]}
    assert told["test_add"] == tried
    assert tried in shown
    assert tried in report
    assert "not there 4 times" in " ".join(answers["test_new"]["evidence"])
    assert "baseline" in answers["test_more"]["evidence"][-2], answers["test_more"]


def test_the_revision_that_broke_it_is_found_on_one_machine(tmp_path):
    found = bisect_round(tmp_path, commits=4, broken=2)
    assert found["right"], found
    assert found["machines"] == 1
    assert [step["why"] for step in found["steps"]].count("check") == 1
    assert found["tried"] <= 3
    repeated = [step["answer"] for step in found["steps"] if step["why"] == "confirm"]
    assert repeated == ["good", "bad"]
