"""The main promise, whole: `POST /runs` to the reports, over three clouds, and nothing is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.home import Home, eventually
from tests.lab.lab_machines import LabMachines
from tests.lab.site import Site, a_site, release_matrix, served

JOBS = ("moe", "moe-demo", "batch-sweep")
RUN_S = 900.0


@pytest.fixture
def site(machines: LabMachines) -> Iterator[Site]:
    with a_site(machines) as site:
        yield site
        site.aws.raise_crashes()


@pytest.fixture
def home(site: Site, tmp_path: Path) -> Iterator[Home]:
    with served(site, tmp_path / "home") as home:
        yield home


def by_id(run: dict[str, Any]) -> dict[str, Any]:
    return {cell["id"]: cell for cell in run["cells"]}


@pytest.mark.timeout(1200)
def test_the_release_matrix_over_three_clouds(home: Home, site: Site, tmp_path: Path) -> None:
    matrix = release_matrix(tmp_path / "release.yaml", jobs=JOBS)
    run_id = home.launch(matrix)
    with home.client() as client:
        eventually(
            lambda: client.get(f"/runs/{run_id}").json()["state"] == "finished", deadline_s=RUN_S
        )
    run = home.get(f"/runs/{run_id}")
    cells = by_id(run)
    assert {name: cell["outcome"] for name, cell in cells.items()} == {
        "local-cpu": "passed",
        "gcp-l4": "passed",
        "aws-a10g": "passed",
        "gcp-tpu-v5e": "passed",
        "aws-mi300x": "not_available",
    }, [(c["id"], c["reason"], c["detail"]) for c in cells.values()]
    assert run["outcome"] == "passed"
    assert cells["aws-mi300x"]["reason"] == "not_offered"
    for name in ("gcp-l4", "aws-a10g", "gcp-tpu-v5e"):
        assert cells[name]["simulated"]
        assert cells[name]["counts"]["passed"] == 48
        assert cells[name]["leases"][-1]["state"] == "gone"
    assert not cells["local-cpu"]["simulated"]
    check_costs(run)
    check_reports(home, run_id, cells)
    assert not site.machines.live()

    def everything_ended() -> bool:
        with suppress(AssertionError):  # while a zone is silent, rules for every zone are kept
            home.seatrial("machines", "--orphans", "--terminate", "-y")
        return not site.left()

    eventually(everything_ended, deadline_s=180)


def check_costs(run: dict[str, Any]) -> None:
    """The bill, reckoned anew from the seconds and prices that stand in it."""
    total = Decimal(0)
    for cell in run["cells"]:
        for lease in cell["leases"]:
            if lease["refusal"] or not lease["price_usd_per_hour"]:
                continue
            hours = Decimal(str(max(60.0, lease["seconds"]))) / 3600
            machine = Decimal(lease["price_usd_per_hour"]) * hours
            total += Decimal(lease["cost_usd"])
            bill = lease["bill"]
            assert abs(Decimal(bill["machine_usd"]) - machine) < Decimal("0.001")
            parts = (Decimal(bill[f"{part}_usd"]) for part in ("machine", "disk", "address"))
            assert sum(parts) == Decimal(lease["cost_usd"])
    assert Decimal(run["cost_usd"]) == total
    assert total > 0


def check_reports(home: Home, run_id: str, cells: dict[str, Any]) -> None:
    summary = (home.path / "runs" / run_id / "report" / "SUMMARY.md").read_text()
    for name in cells:
        assert name in summary
    assert "SIMULATED" in summary
    told = json.loads(home.seatrial("report", run_id, "--kind", "summary", "--format", "json"))
    assert told
    for name in ("gcp-l4", "aws-a10g", "gcp-tpu-v5e", "local-cpu"):
        page = home.path / "runs" / run_id / "report" / name / "SUMMARY.md"
        assert "moe" in page.read_text()
