"""What becomes of a cell whose machine is not as it should be.

The first half needs no machine: what is enforced on real ones only is enforced on ones that say
they are real. The second half is run inside the seal, on the lab's machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from time import sleep
from typing import Any, cast

import pytest

from orchestrator.application.cell.flow_context import Timings
from orchestrator.bootstrap.controller_wiring import WorkspacePool
from orchestrator.domain.cell import CellState
from orchestrator.domain.machine import (
    HostKeyError,
)
from orchestrator.domain.matrix import Accelerator, Limits
from runners.fake import FakeComputer
from runners.fake.fake_machine import PROBE, Event, Plan, ended, passing
from tests.e2e.home import eventually
from tests.integration.fake_world import SteppingClock
from tests.lab import payloads_of_lab as lab
from tests.lab import test_fault_table_aws as aws_table
from tests.lab import test_fault_table_gcp as gcp_table
from tests.lab.aws_cloud import AwsCloud
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.fault_table import check_nothing_left, sealed
from tests.lab.fault_world import FaultWorld, HandMachines, Unmasked
from tests.lab.lab_machines import LabMachines, Spoil
from tests.lab.site import a_site, served

A10G = Accelerator(vendor="nvidia", name="A10G")
GPU = {"index": 0, "vendor": "nvidia", "name": "NVIDIA A10G", "uuid": "GPU-1", "memory_bytes": 1}
ONE_TRY = Limits(max_usd=Decimal(20), infra_retries=0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultWorld]:
    with aws_table.a_world(tmp_path / "world", monkeypatch) as world:
        world.platform = replace(world.platform, accelerator=A10G)
        world.limits = ONE_TRY
        yield world


def driver(state: str) -> Callable[[FakeComputer], None]:
    def prepare(computer: FakeComputer) -> None:
        computer.probe = {**PROBE, "devices": [GPU]}
        computer.ready = [{"check": "driver", "state": state, "detail": "nvidia-smi: not found"}]

    return prepare


def real(here: FaultWorld) -> None:
    here.provider = Unmasked(here.provider)


@pytest.mark.parametrize("state", ["failed", "waiting"])
def test_a_real_machine_without_a_driver_gives_no_result(here: FaultWorld, state: str) -> None:
    real(here)
    here.prepare = driver(state)
    cell = here.go()
    assert (cell.outcome, cell.reason) == ("errored", "driver"), cell.detail
    assert "nvidia-smi: not found" in cell.detail
    assert not any(computer.attempts for computer in here.computers.values())
    check_nothing_left(here)
    here.check_money()


@pytest.mark.parametrize("state", ["failed", "waiting"])
def test_a_simulated_machine_without_a_driver_is_used_and_says_so(
    here: FaultWorld, state: str
) -> None:
    here.prepare = driver(state)
    cell = here.go()
    assert (cell.outcome, cell.simulated) == ("passed", True)
    check_nothing_left(here)


@pytest.mark.parametrize("is_real", [True, False])
def test_a_driver_that_answers_late_is_waited_for(here: FaultWorld, *, is_real: bool) -> None:
    if is_real:
        real(here)

    def prepare(computer: FakeComputer) -> None:
        computer.ready = [{"check": "driver", "state": "waiting", "detail": "nvidia-smi: no"}]
        answers_at = here.clock.now() + timedelta(minutes=5)

        def answer(here: FaultWorld) -> None:
            if here.clock.now() >= answers_at:
                here.on_tick.remove(answer)
                computer.ready = [{"check": "driver", "state": "ok", "detail": "580.95.05"}]
                computer.probe = {**PROBE, "devices": [GPU]}

        here.on_tick.append(answer)

    here.prepare = prepare
    cell = here.go()
    assert cell.outcome == "passed", cell.detail
    assert cell.attestation is not None
    assert [device.name for device in cell.attestation.devices] == ["NVIDIA A10G"]
    check_nothing_left(here)


@pytest.mark.parametrize("is_real", [True, False])
def test_wrong_hardware_is_no_result_on_any_machine(here: FaultWorld, *, is_real: bool) -> None:
    if is_real:
        real(here)

    def prepare(computer: FakeComputer) -> None:
        computer.probe = {**PROBE, "devices": [{**GPU, "name": "NVIDIA L4"}]}

    here.prepare = prepare
    cell = here.go()
    assert (cell.outcome, cell.reason) == ("errored", "wrong_hardware"), cell.detail
    assert "NVIDIA L4" in cell.detail
    assert not any(computer.attempts for computer in here.computers.values())
    check_nothing_left(here)


def test_torch_is_asked_for_its_device_and_enforced_on_real_machines_only(
    here: FaultWorld,
) -> None:
    plans: list[Plan] = []

    def script(plan: Plan) -> Iterator[Event]:
        plans.append(plan)
        if cast("dict[str, Any]", plan["readiness"])["enforce"]:
            yield ended("errored", "torch_device")
        else:
            yield from passing(plan)

    def prepare(computer: FakeComputer) -> None:
        computer.probe = {**PROBE, "devices": [GPU]}
        computer.script = script

    real(here)
    here.prepare = prepare
    cell = here.go()
    assert (cell.outcome, cell.reason) == ("errored", "torch_device")
    assert cast("dict[str, Any]", plans[0]["readiness"])["device"] == "cuda"
    check_nothing_left(here)


def test_an_address_that_was_given_to_a_stranger_means_that_the_machine_is_gone(
    here: FaultWorld,
) -> None:
    """Whoever answers there has another host key: that is no attack, and another try may pass."""
    here.platform = replace(here.platform, accelerator=None)
    here.limits = replace(ONE_TRY, infra_retries=1)
    here.prepare = lambda computer: setattr(computer, "lines_per_look", 1)
    known = here.world.open_workspace

    class Stranger:
        def pull(self, *_: object, **__: object) -> None:
            raise HostKeyError("another host key was presented")

        def __getattr__(self, name: str) -> object:
            return self.pull

    def opened(endpoint: Any) -> Any:
        spec = [x for x in here.machines.booted if endpoint.address in x.addresses][-1]
        return known(endpoint) if spec.id in here.machines.live() else Stranger()

    here.world = replace(here.world, open_workspace=opened)
    here.renew_engine()
    here.once_in(CellState.RUNNING, FaultWorld.take_away)
    cell = here.go()
    assert (cell.outcome, len(cell.attempts)) == ("passed", 2), cell.detail
    assert cell.attempts[0].cause is not None
    assert cell.attempts[0].cause.reason == "preempted"


# On the lab's machines.


def as_real(here: FaultWorld, boot_s: float) -> None:
    """The product's own workspaces, and a clock that goes as the machines' clocks do."""
    leases = here.database.stores.leases
    folder = here.folder
    pool = WorkspacePool(keys=folder, local_base=folder, login=leases.login)
    timings = Timings(never_made_after_s=5, boot_s=boot_s, visible_after_s=5)
    here.world = replace(here.world, open_workspace=pool.open, timings=timings)
    here.limits = ONE_TRY
    here.on_tick.append(go_with_the_time)
    here.renew_engine()


def go_with_the_time(here: FaultWorld) -> None:
    sleep(0.3)
    here.clock.time = max(here.clock.time, datetime.now(UTC))


@pytest.fixture
def hand() -> SteppingClock:
    """As late as it is on the machines, whose own timers go by an absolute time."""
    return SteppingClock(datetime.now(UTC))


@pytest.fixture
def on_aws(
    machines: LabMachines, hand: SteppingClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultWorld]:
    with AwsCloud(machines=machines, clock=hand.now) as cloud:
        cloud.follow_facts()
        aws_table.lead_boto_to(cloud, monkeypatch)
        real_ones = cast("HandMachines", machines)
        world = FaultWorld(tmp_path, aws_table.RIG, cloud, real_ones, hand, {})
        as_real(world, 20)
        yield world
        world.close()


@pytest.fixture
def on_gcp(machines: LabMachines, hand: SteppingClock, tmp_path: Path) -> Iterator[FaultWorld]:
    with ComputeCloud(machines=machines, clock=hand.now) as cloud:
        cloud.follow_facts()
        settings = {"gcp_project": "lab", "gcp_compute_endpoint": cloud.endpoint_url}
        real_ones = cast("HandMachines", machines)
        world = FaultWorld(tmp_path, gcp_table.RIG, cloud, real_ones, hand, settings)
        as_real(world, 120)
        yield world
        world.close()


def spoilt(here: FaultWorld, spoil: Spoil) -> tuple[str, str]:
    """How the cell fares on machines that are so from their first boot on."""
    cast("LabMachines", here.machines).spoil(lambda spec: spoil)
    cell = here.go()
    assert set(here.left()) <= here.rig.shared
    assert here.machines.live() == ()
    assert here.answers(here.rig.creates) == ["ok"]
    here.check_money()
    assert cell.cost_usd > 0
    return str(cell.reason), cell.detail


@sealed
@pytest.mark.parametrize(
    "spoil", [Spoil(ssh_hangs=True), Spoil(ssh_swallowed=True)], ids=["hangs", "swallowed"]
)
def test_ssh_that_never_opens_ends_the_boot(on_aws: FaultWorld, spoil: Spoil) -> None:
    reason, detail = spoilt(on_aws, spoil)
    assert reason == "ssh", detail
    assert "Its console's last lines:" in detail


@sealed
def test_another_host_key_than_the_injected_one_is_never_spoken_to(on_aws: FaultWorld) -> None:
    reason, detail = spoilt(on_aws, Spoil(other_host_key=True))
    assert reason == "host_key", detail


@sealed
def test_another_host_key_than_the_published_one_is_never_spoken_to(on_gcp: FaultWorld) -> None:
    reason, detail = spoilt(on_gcp, Spoil(other_host_key=True))
    assert reason == "host_key", detail


@sealed
def test_a_machine_that_ends_before_it_boots_is_no_machine(on_aws: FaultWorld) -> None:
    """As one whose kernel panics: EC2 takes it back, and every place gets its try."""
    cast("LabMachines", on_aws.machines).spoil(lambda spec: Spoil(never_boots=True))
    cell = on_aws.go()
    assert (cell.outcome, cell.reason) == ("errored", "boot"), cell.detail
    assert on_aws.answers(on_aws.rig.creates) == ["ok"] * 6
    assert set(on_aws.left()) <= on_aws.rig.shared
    assert on_aws.machines.live() == ()


@sealed
def test_a_reboot_while_running_ends_the_attempt_and_the_next_one_passes(
    machines: LabMachines, tmp_path: Path
) -> None:
    """The guest's timer is armed again; the agent is not there any more, and that is noticed."""
    files = {"wait.py": "from gates import at\nat('one')\n"}
    payload = lab.a_payload(tmp_path / "payload", lab.demo("wait", "wait.py"), files)
    matrix = lab.a_matrix(tmp_path / "m.yaml", payload, lab.AWS)
    with a_site(machines) as site, served(site, tmp_path / "home") as home:
        run = home.launch(matrix)
        first = lab.the_machine(machines)
        lab.gate(machines, first, "one")
        machines.reboot(first)
        eventually(lambda: len(lab.cell(home, run, "aws")["attempts"]) == 2)
        second: list[str] = []
        eventually(lambda: second.extend(set(machines.live()) - {first}) or second)
        eventually(lambda: machines.is_up(second[0]))
        lab.gate(machines, second[0], "one")
        lab.open_gate(machines, second[0], "one")
        shown = lab.finished(home, run)
        (cell,) = shown["cells"]
        assert cell["outcome"] == "passed", cell["detail"]
        first_attempt = cell["attempts"][0]
        assert first_attempt["cause"]["reason"] in ("agent", "lost"), cell["attempts"]
        lab.nothing_left(site)
