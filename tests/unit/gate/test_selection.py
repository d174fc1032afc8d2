"""The rule of the selection by examples: what was left out, by whom, and what was there before."""

from __future__ import annotations

import pytest

from orchestrator.domain.collected_tests import Deselection, Hook, SkippedPath, TestSet
from orchestrator.domain.gate.policy import SkipRule
from orchestrator.domain.gate.verdict import Decision
from tests.unit.gate.builders import cell, job, judge, policy, snapshot

PASS, FAIL = Decision.PASS, Decision.FAIL
LEFT_OUT = Deselection(by="conftest.py", count=2, tests=("t.py::a", "t.py::b"))
ASKED = Deselection(by="-k", count=1, tests=("t.py::c",), asked=True)
MODULE = SkippedPath(path="t_gpu.py", why="needs a GPU")
AWAY = SkippedPath(path="gpu", why="conftest")


@pytest.mark.parametrize(
    ("told", "known", "skips", "decision", "says"),
    [
        (TestSet(), {}, None, PASS, ""),
        (TestSet(hidden=("b.py",)), {}, None, PASS, ""),
        (TestSet(deselected=(ASKED,)), {}, None, PASS,
         "-k deselected 1 test (t.py::c), as the job's arguments say"),
        (TestSet(deselected=(LEFT_OUT, ASKED)), {}, None, FAIL,
         "conftest.py deselected 2 tests (t.py::a, t.py::b), and the job's arguments do not"),
        (TestSet(modules=(MODULE,)), {}, None, PASS, "t_gpu.py skipped itself as a whole"),
        (TestSet(modules=(MODULE,)), {"t_gpu.py": 7}, None, FAIL,
         "(needs a GPU), of which the last green run had 7 tests"),
        (TestSet(modules=(MODULE,)), {"t_gpu.py": 7}, SkipRule(allow_reasons=("needs *",)), PASS,
         "of which the last green run had 7 tests"),
        (TestSet(hooks=(Hook(name="pytest_pyfunc_call", file="conftest.py"),)), {}, None, PASS,
         "conftest.py implements pytest_pyfunc_call"),
        (TestSet(ignored=(AWAY,)), {}, None, PASS, "gpu was not looked into (conftest)"),
        (TestSet(ignored=(AWAY,)), {"gpu": 1}, SkipRule(allow_reasons=("*",)), FAIL,
         "gpu was not looked into (conftest), of which the last green run had 1 test"),
    ],
)  # fmt: skip
def test_the_test_set(
    told: TestSet, known: dict[str, int], skips: SkipRule | None, decision: Decision, says: str
):
    suite = job("moe", test_set=told, known_tests=known)
    verdict = judge(policy(skips=skips), snapshot(cell("gcp-l4", suite)))
    assert verdict.decision is decision
    found = [one.sentence for one in verdict.rules if one.id == "selection/moe@gcp-l4"]
    assert [says in sentence for sentence in found] == [True] * bool(says)
