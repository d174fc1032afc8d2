"""A small sample of `benchmarks/planted_faults.py`: faults of each kind, for real."""

from __future__ import annotations

import pytest

from benchmarks.planted_faults import Score, bisect_round, machine_round, mixed_round
from tests.ssh_hosts import sshd_missing


def test_a_subject_a_package_and_flaky_tests_are_told_apart(tmp_path):
    score = Score()
    mixed_round(tmp_path, score, each=1, number=0)
    assert score.wrong() == 0, score.tell()
    assert score.blamed["ours"] == {"ours": 1}
    assert score.blamed["dependency"] == {"dependency": 1}


@pytest.mark.needs_sshd
@pytest.mark.skipif(sshd_missing() is not None, reason=str(sshd_missing()))
def test_a_machine_that_computes_wrong_is_found_by_a_second_one(tmp_path):
    score = Score()
    machine_round(tmp_path, score, each=1)
    assert score.blamed == {"machine": {"machine": 1}}


def test_the_revision_that_broke_it_is_found_on_one_machine(tmp_path):
    found = bisect_round(tmp_path, commits=4, broken=2)
    assert found["right"], found
    assert found["machines"] == 1
    assert [step["why"] for step in found["steps"]].count("check") == 1
    assert found["tried"] <= 3
    repeated = [step["answer"] for step in found["steps"] if step["why"] == "confirm"]
    assert repeated == ["good", "bad"]
