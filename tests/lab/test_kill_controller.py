"""kill -9 between a launch call and its answer: every machine is adopted or ended, none is twice.

No machine stands behind the clouds here, and none is ever reached: no packet leaves the loopback.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.janitor import EXPIRED_GRACE, ORPHAN_GRACE, SECOND_LOOK
from orchestrator.domain.inventory import Ownership
from tests.e2e.home import Home, eventually
from tests.integration.memory_engine import SimulatedCrashError
from tests.lab import payloads_of_lab as lab
from tests.lab import test_fault_table_aws as aws_table
from tests.lab import test_fault_table_gcp as gcp_table
from tests.lab import test_fault_table_tpu as tpu_table
from tests.lab.cloud_facts import durations
from tests.lab.fault_table import Arrange, sealed
from tests.lab.fault_world import FaultWorld
from tests.lab.faults import Fault
from tests.lab.google.quotas_cloud import QuotasCloud
from tests.lab.lab_machines import LabMachines
from tests.lab.machines import NoMachines
from tests.lab.site import Site, a_site, release_matrix, served

KILLS = 2
PLATFORMS = ("aws-a10g", "gcp-l4", "gcp-tpu-v5e")
CREATES = {"aws": "RunInstances", "gcp": "instances.insert", "tpu": "CreateQueuedResource"}
SHARED = {"security-group", "firewall"}
_LIMIT_S = 180.0


@dataclass
class Gate:
    """Where a call is held until the test lets it go on."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def hold(self) -> None:
        self.reached.set()
        self.opened.wait(_LIMIT_S)


@pytest.fixture
def gated() -> NoMachines:
    """Machines that never come up."""
    return NoMachines(boot_delay_s=10**6)


@pytest.fixture
def site(gated: NoMachines) -> Iterator[Site]:
    with a_site(gated) as site:
        never_up(site)
        yield site
        site.aws.raise_crashes()


def never_up(site: Site) -> None:
    """Let no cloud say of a machine that it runs before the test is over."""
    site.compute.fleet.staging_limit_s = site.tpu.nodes.booting_limit_s = 10**6


@pytest.fixture
def home(site: Site, tmp_path: Path) -> Iterator[Home]:
    # outside the seal, so nothing may ask anybody else either
    with QuotasCloud(quotas=site.tpu.quotas) as quotas:
        endpoint = quotas.endpoint_url
        with served(site, tmp_path / "home", SEATRIAL_GCP_QUOTAS_ENDPOINT=endpoint) as home:
            yield home


def clouds(site: Site) -> dict[str, Any]:
    return {"aws": site.aws, "gcp": site.compute, "tpu": site.tpu}


@contextmanager
def gates(site: Site, *, after: bool) -> Iterator[list[Gate]]:
    """The next create call of each cloud is held before it is carried out, or its answer after."""
    made = [Gate() for _ in CREATES]
    for gate, (name, cloud) in zip(made, clouds(site).items(), strict=True):
        cloud.faults.script(CREATES[name], [Fault(hold=gate.hold, after=after)])
    yield made
    for gate in made:
        gate.opened.set()


def leases(home: Home, run: str) -> list[dict[str, Any]]:
    return [lease for cell in home.get(f"/runs/{run}")["cells"] for lease in cell["leases"]]


def are_held(home: Home, run: str) -> bool:
    found = leases(home, run)
    return len(found) == len(PLATFORMS) and all(lease["state"] == "active" for lease in found)


def only_shared(site: Site) -> bool:
    return {kind for kind, _ in site.left()} <= SHARED


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_between_launch_and_answer_in_three_clouds(
    home: Home, site: Site, gated: NoMachines, tmp_path: Path
) -> None:
    matrix = release_matrix(tmp_path / "matrix.yaml", jobs=("moe",), platforms=PLATFORMS)
    runs = []
    for number in range(KILLS):
        with gates(site, after=number % 2 == 1) as closed:
            runs.append(home.launch(matrix))
            for gate in closed:
                assert gate.reached.wait(_LIMIT_S), home.log()[-2000:]
            home.kill_controller()
        home.start_controller()
        eventually(lambda: are_held(home, runs[-1]), deadline_s=_LIMIT_S)
        wanted = len(CREATES) * (number + 1)
        eventually(lambda wanted=wanted: len(gated.booted) >= wanted, deadline_s=_LIMIT_S)
        made = Counter(spec.cloud for spec in gated.booted)
        assert made == dict.fromkeys(CREATES, number + 1)
        names = {lease["machine_id"] for lease in leases(home, runs[-1])}
        assert len(names) == len(PLATFORMS)
        home.seatrial("cancel", runs[-1])
        eventually(lambda: only_shared(site), deadline_s=_LIMIT_S)
    for run in runs:
        finished: Callable[[], bool] = lambda run=run: (  # noqa: E731
            home.get(f"/runs/{run}")["state"] == "finished"
        )
        eventually(finished, deadline_s=150)
        assert {lease["state"] for lease in leases(home, run)} == {"gone"}
    assert gated.live() == ()


@sealed
@pytest.mark.parametrize("name", ["aws", "gcp"])
def test_a_run_whose_controller_was_killed_at_the_launch_goes_on_on_the_one_machine(
    machines: LabMachines, tmp_path: Path, name: str
) -> None:
    payload = lab.a_payload(tmp_path / "payload", lab.demo("say", "say.py"), {"say.py": "print(1)"})
    platform = {"aws": lab.AWS, "gcp": lab.GCP}[name]
    matrix = lab.a_matrix(tmp_path / "m.yaml", payload, platform)
    with a_site(machines) as site, served(site, tmp_path / "home") as home:
        gate = Gate()
        clouds(site)[name].faults.script(CREATES[name], [Fault(hold=gate.hold)])
        run = home.launch(matrix)
        assert gate.reached.wait(_LIMIT_S), home.log()[-2000:]
        home.kill_controller()
        gate.opened.set()
        home.start_controller()
        (cell,) = lab.finished(home, run)["cells"]
        assert cell["outcome"] == "passed", cell["detail"]
        assert (len(cell["attempts"]), len(cell["leases"])) == (1, 1)
        lines = [line for line in clouds(site)[name].billing() if line.kind == "instance"]
        assert len(lines) == 1
        lab.nothing_left(site)


# A second controller of the same project, with an empty home.

TABLES = {"aws": aws_table, "gcp": gcp_table, "tpu": tpu_table}


@pytest.fixture(params=sorted(TABLES))
def first(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> Iterator[FaultWorld]:
    with TABLES[request.param].a_world(tmp_path / "first", monkeypatch) as world:
        yield world


def dies_with_its_call(here: FaultWorld) -> None:
    """The answer to the launch is lost, and the controller does not live to ask again."""
    here.cloud.faults.script(here.rig.creates[0], [Fault(drop=True, after=True)])

    def die(_: FaultWorld) -> None:
        raise SimulatedCrashError("killed for good")

    here.on_tick.append(die)


def dies_with_its_machine(here: FaultWorld) -> None:
    """The machine runs, and its controller is killed."""
    here.engine.crash_after = 2


@pytest.mark.parametrize("kill", [dies_with_its_call, dies_with_its_machine])
def test_another_controller_ends_what_the_first_left_behind(
    first: FaultWorld, kill: Arrange, tmp_path: Path
) -> None:
    kill(first)
    with pytest.raises(SimulatedCrashError):
        first.go()
    assert (
        len([kind for kind, _ in first.cloud.alive() if kind in ("instance", "queued-resource")])
        == 1
    )
    first.clock.step(durations(first.rig.provider)["visible"] + 1)  # until the cloud lists it
    (tmp_path / "second").mkdir()
    second = FaultWorld(
        tmp_path / "second", first.rig, first.cloud, first.machines, first.clock, first.settings
    )
    janitor = second.janitor(controller="another")
    assert janitor.sweep() == []
    kinds = {sight.ownership for sight in janitor.take_inventory().resources}
    assert kinds <= {Ownership.FOREIGN, Ownership.SHARED}
    assert Ownership.FOREIGN in kinds
    (lease,) = first.leases()
    tags = [
        sight for sight in janitor.take_inventory().resources if sight.machine.token == lease.id
    ]
    (expires_at,) = {sight.expires_at for sight in tags}
    assert expires_at is not None
    first.clock.time = expires_at - timedelta(seconds=1)
    assert janitor.sweep() == []
    for wait in (EXPIRED_GRACE + timedelta(seconds=1), SECOND_LOOK, SECOND_LOOK, ORPHAN_GRACE):
        first.clock.step(wait.total_seconds() + 1)
        janitor.sweep()
    assert first.cloud.alive() == []
    assert first.machines.live() == ()
    second.close()
