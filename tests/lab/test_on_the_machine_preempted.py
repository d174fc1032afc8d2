"""A machine that is taken away: its tests are not lost, and no other runs them again."""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal

import pytest

from tests.e2e.home import Home, eventually
from tests.lab import payloads_of_lab as lab
from tests.lab.lab_machines import LabMachines
from tests.lab.site import a_site, served

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("sealed"), pytest.mark.timeout(600)]

TESTS, HALF = 40, 20
NOTICE_S = 25.0
STEPS = f"""
import gates
import pytest

@pytest.mark.parametrize("n", range({TESTS}))
def test_step(n):
    print(f"begun {{n}}", flush=True)
    if n == {HALF}:
        gates.at("half")
    print(f"ended {{n}}", flush=True)
"""
JOBS = lab.suite("steps", "test_steps.py") + lab.demo("after", "after.py")
FILES = {"test_steps.py": STEPS, "after.py": "print('after')"}
PLATFORMS = {"aws": lab.AWS, "gcp": lab.GCP, "tpu": lab.TPU}


@pytest.fixture
def site(machines):
    with a_site(machines) as site:
        yield site


@pytest.fixture
def home(site, tmp_path):
    with served(site, tmp_path / "home") as home:
        yield home


@pytest.mark.parametrize("name", PLATFORMS)
def test_what_has_an_outcome_is_not_run_again(name, home: Home, site, machines, tmp_path):
    setup = '[setup]\npip = ["pytest>=8"]\n'
    payload = lab.a_payload(tmp_path / "payload", JOBS, FILES, setup)
    run = home.launch(lab.a_matrix(tmp_path / "m.yaml", payload, PLATFORMS[name]))
    first = lab.the_machine(machines)
    lab.gate(machines, first, "half")
    eventually(lambda: home.tests_stored(run) == HALF)
    cloud = {"aws": site.aws, "gcp": site.compute, "tpu": site.tpu}[name]
    cloud.preempt(first, notice_s=NOTICE_S)
    eventually(lambda: len(lab.cell(home, run, name)["attempts"]) == 2, deadline_s=90)
    asked = asked_for(machines, first)
    second = another_machine(machines, first)
    lab.gate(machines, second, "half")
    lab.open_gate(machines, second, "half")
    shown = lab.finished(home, run)
    (cell,) = shown["cells"]
    assert cell["outcome"] == "passed"
    assert cell["counts"]["passed"] == TESTS
    assert [a["outcome"] for a in cell["attempts"]] == ["errored", "passed"]
    cause = cell["attempts"][0]["cause"]
    assert cause["reason"] == "preempted"
    assert "the provider takes the machine" in cause["detail"], asked
    once_each(lab.log_of(home, run, name))
    on_the_bill(home, run, cell, cloud.billing())
    decisions(home, run, cell)
    lab.nothing_left(site)


def another_machine(machines: LabMachines, first: str) -> str:
    """The one that is up beside the first, or after it."""
    up: list[str] = []

    def is_there() -> bool:
        up[:] = [one for one in machines.live() if one != first and machines.is_up(one)]
        return bool(up)

    eventually(is_there)
    return up[0]


def asked_for(machines: LabMachines, machine: str) -> Counter[str]:
    """What the machine asked its metadata address, while it is still known."""
    try:
        return Counter(machines.requests(machine))
    except KeyError:
        return Counter()


def once_each(log: str) -> None:
    """Both machines' logs together: every test came to its end once, one was cut short."""
    begun = Counter(re.findall(r"begun (\d+)", log))
    ended = Counter(re.findall(r"ended (\d+)", log))
    assert len(begun) == TESTS
    assert sorted(begun.values())[:-1] == [1] * (TESTS - 1), begun
    assert max(begun.values()) <= 2, "only the one that the notice interrupted was begun twice"
    assert sorted(ended.values()) == [1] * TESTS, ended
    assert re.findall("^after$", log, re.MULTILINE) == ["after"]


def on_the_bill(home: Home, run: str, cell, metered) -> None:
    leases = [one for one in cell["leases"] if not one["refusal"]]
    assert [one["attempt"] for one in leases] == [1, 2]
    assert len({one["machine_id"] for one in leases}) == 2
    assert all(Decimal(one["cost_usd"]) > 0 for one in leases)
    assert sum(Decimal(one["cost_usd"]) for one in leases) == Decimal(cell["cost_usd"])
    machines = [one for one in metered if one.kind in ("instance", "node")]
    assert len(machines) == 2
    for lease, line in zip(leases, machines, strict=True):
        assert line.ended_at is not None
        lived_s = (line.ended_at - line.started_at).total_seconds()
        # Billed from the call to the answer that it is gone: never less than the cloud does.
        assert lived_s - 1 <= lease["seconds"] <= lived_s + 60
    cost = home.json("cost", run)
    assert Decimal(cost["bill"]["total_usd"]) == Decimal(cell["cost_usd"])
    assert cost["settled"]


def decisions(home: Home, run: str, cell) -> None:
    """A person can read where it went, and why not where it had been."""
    chosen = [one for one in cell["decisions"] if one["result"] == "chosen"]
    assert [one["attempt"] for one in chosen] == [1, 2]
    assert chosen[0]["place"] != chosen[1]["place"], "elsewhere"
    worn = [one for one in cell["decisions"] if one["reason"] == "worn"]
    assert [(one["place"], one["attempt"]) for one in worn] == [(chosen[0]["place"], 2)]
    page = home.seatrial("show", run, status=0)
    assert "preempted" in page
