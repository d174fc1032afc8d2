"""What a gate is shown of tests that were left out: the same on SQLite and on Postgres."""

from __future__ import annotations

from types import SimpleNamespace

from orchestrator.domain.collected_tests import SkippedPath, TestSet
from tests.contract.frozen_runs import only_cell, passes, ran
from tests.databases import after


def test_what_a_job_left_out_is_told_with_the_tests_that_were_there_before(stores) -> None:
    context = SimpleNamespace(stores=stores, clock=SimpleNamespace(now=lambda: after(3600)))
    gpu = ("t_gpu.py::one", "t_gpu.py::two[a/b]", "t_gpu.pyx::other")
    ran(stores, "run-1", *map(passes, ("t.py::a", *gpu)))
    said = {"digest": "ab", "collected": 1, "hidden": [], "ignored": [["new", "conftest"]]}
    said |= {"modules": [["t_gpu.py", "Skipped: no GPU"]], "deselected": []}
    said |= {"record": "test_set", "nodeid": ""}
    ran(stores, "run-2", passes("t.py::a"), lambda agent: agent.line("test", "unit", **said))
    (suite,) = (job for job in only_cell(context, "run-2").jobs if job.id == "unit")
    assert suite.test_set == TestSet(
        digest="ab",
        collected=1,
        modules=(SkippedPath(path="t_gpu.py", why="no GPU"),),
        ignored=(SkippedPath(path="new", why="conftest"),),
    )
    assert suite.known_tests == {"t_gpu.py": 2}
