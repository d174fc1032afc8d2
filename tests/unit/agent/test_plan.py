"""Plans: what is taken, and what a person is told about the others."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.agent import plan

JOB = {"id": "moe", "kind": "suite", "pytest": ["a.py"], "timeout_s": 60}
GOOD: dict[str, Any] = {
    "v": 1, "attempt": "a1", "payload": "0" * 64, "wheels": None, "python": "/usr/bin/python3",
    "environment": {"name": "image"}, "subject": None, "jobs": [JOB],
}  # fmt: skip


def load(tmp_path: Path, raw: object) -> plan.AgentPlan:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(raw))
    return plan.load(path)


def test_defaults(tmp_path: Path) -> None:
    found = load(tmp_path, GOOD)
    assert found.payload_user is True
    assert found.limits == plan.AttemptLimits()
    assert found.environment.requirements == ()
    (job,) = found.jobs
    assert (job.silence_s, job.gpus, job.env, job.skip) == (60, 0, {}, ())


def test_what_is_asked_of_the_device_and_of_the_cloud(tmp_path: Path) -> None:
    plain = load(tmp_path, GOOD)
    assert (plain.readiness, plain.preemption) == (None, None)
    assert plain.metadata_url == "http://169.254.169.254"
    asked = {"device": "cuda", "enforce": True}
    found = load(tmp_path, {**GOOD, "readiness": asked, "preemption": "gcp"})
    assert found.readiness == plan.Readiness("cuda", enforce=True, timeout_s=120)
    assert found.preemption == "gcp"
    null = load(tmp_path, {**GOOD, "readiness": {"device": None}, "preemption": None})
    assert null.readiness == plan.Readiness(None, enforce=False, timeout_s=120)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"v": 9}, "version 9; this agent knows version 1"),
        ({"payload": "../etc"}, "payload must be a plain name, not '../etc'"),
        ({"python": 3}, "python must be a text, not 3"),
        ({"jobs": {}}, "jobs must be a list"),
        ({"jobs": ["x"]}, "jobs[0] must be an object"),
        ({"jobs": [JOB, JOB]}, "names job 'moe' more than once"),
        ({"jobs": [{**JOB, "command": ["x"]}]}, "only one of them"),
        ({"jobs": [{**JOB, "pytest": None, "command": []}]}, "jobs[0].command is empty"),
        ({"jobs": [{**JOB, "timeout_s": "60"}]}, "jobs[0].timeout_s must be a number"),
        ({"jobs": [{**JOB, "timeout_s": True}]}, "jobs[0].timeout_s must be a number"),
        ({"jobs": [{**JOB, "env": {"A": 1}}]}, "jobs[0].env.A must be a text, not 1"),
        ({"jobs": [{**JOB, "env": {"A=B": "1"}}]}, "jobs[0].env.A=B must be a text"),
        ({"jobs": [{**JOB, "skip": [1]}]}, "jobs[0].skip[0] must be a text"),
        ({"readiness": {"device": "gpu"}}, "readiness.device must be one of cuda, xla, cpu, not"),
        ({"readiness": {"enforce": 1}}, "readiness.enforce must be true or false"),
        ({"readiness": True}, "readiness must be an object"),
        ({"preemption": "azure"}, "preemption must be one of aws, gcp, not 'azure'"),
        ({"metadata_url": ""}, "metadata_url must be a text"),
        ({"limits": {"restarts": -1}}, "limits.restarts must be a number that is not negative"),
        ({"environment": {"name": "x", "index": "yes"}}, "environment.index must be true or false"),
        ({"subject": {"distribution": "x"}}, "subject.version must be a text"),
    ],
)
def test_bad_plans_are_refused_with_a_sentence(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(plan.PlanError, match=r"plan\.json") as caught:
        load(tmp_path, {**GOOD, **change})
    assert says in str(caught.value)


def test_missing_and_torn_files(tmp_path: Path) -> None:
    with pytest.raises(plan.PlanError, match="cannot be read"):
        plan.load(tmp_path / "absent.json")
    (tmp_path / "torn.json").write_text('{"v": 1')
    with pytest.raises(plan.PlanError, match="is not JSON"):
        plan.load(tmp_path / "torn.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.sampled_from(sorted(GOOD)), JSON)
def test_no_plan_brings_anything_but_a_plan_error(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: object
) -> None:
    """Whatever stands in a plan, the only thing that can go wrong is a refusal."""
    with contextlib.suppress(plan.PlanError):
        load(tmp_path_factory.mktemp("plan"), {**GOOD, key: value})
