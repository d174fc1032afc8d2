"""Several runs of one controller, and cells one after the other. Run inside the seal."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab import payloads_of_lab as lab
from tests.lab.site import a_site, served

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("sealed"), pytest.mark.timeout(600)]

JOB = "import time\nprint('at work')\ntime.sleep(8)\n"


@pytest.fixture
def site(machines):
    with a_site(machines) as site:
        yield site


def span(cell: dict[str, Any]) -> tuple[str, str]:
    """From when a machine was looked for until it was gone."""
    at = {step["to_state"]: step["at"] for step in cell["transitions"]}
    return at["placing"], at["done"]


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return max(span(one)[0], span(other)[0]) < min(span(one)[1], span(other)[1])


def test_two_runs_at_once_and_one_cell_at_a_time(site, tmp_path):
    payload = lab.a_payload(tmp_path / "payload", lab.demo("work", "work.py"), {"work.py": JOB})
    limits = {"max_parallel": 1}
    narrow = lab.a_matrix(tmp_path / "narrow.yaml", payload, lab.AWS, lab.GCP, limits=limits)
    wide = lab.a_matrix(tmp_path / "wide.yaml", payload, lab.AWS, lab.GCP)
    with served(site, tmp_path / "home") as home:
        runs = [home.launch(narrow), home.launch(wide)]
        first, second = (lab.finished(home, run)["cells"] for run in runs)
    for cell in (*first, *second):
        assert cell["outcome"] == "passed", cell["detail"]
    assert not overlap(*first), "max_parallel: 1"
    assert overlap(*second), "the other run has its own limit"
    assert any(overlap(one, other) for one in first for other in second)
    machines = [cell["leases"][-1]["machine_id"] for cell in (*first, *second)]
    assert len(set(machines)) == 4
    launches = [c for c in site.aws.calls if c.name == "RunInstances"]
    assert len({call.key for call in launches}) == 2
    lab.nothing_left(site)
