"""The mission as a whole: ten nights of a release gate by one clock, over three clouds.

The clouds' own clients speak to emulated EC2, Compute Engine and Cloud TPU; no machine is behind
them, and no packet leaves the loopback. Schedule, gate and channel come by REST. Every figure that
people read is held against the leases, and these against the clouds' meters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from orchestrator.adapters.signing import verify_bundle
from orchestrator.api.app import create_app
from orchestrator.application.cell.flow import run_cell
from orchestrator.application.fire_schedules import fire
from orchestrator.application.janitor import ORPHAN_GRACE, Janitor
from orchestrator.assets import asset_dir
from orchestrator.dashboard import urls
from orchestrator.domain.cell import CellState, Lease
from orchestrator.domain.machine import Provider, SshEndpoint
from runners import registry
from runners.fake import FakeComputer, FakeWorkspace, passing
from runners.fake.fake_machine import Script
from runners.provider_context import ProviderContext
from tests.integration.api_context import Desk, desk
from tests.integration.dashboard.desk import signed_in
from tests.integration.memory_engine import MemoryEngine, SimulatedCrashError
from tests.integration.nightly_story import ScriptedWheels
from tests.integration.schedule_world import COMMITS, MadeUpSubjects
from tests.lab.aws_cloud import AwsCloud
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.fault_world import (
    CIDR,
    CONTROLLER,
    PROJECT,
    HandMachines,
    Unmasked,
    computer_at,
    expected_cost,
    flow_deps,
)
from tests.lab.faults import Fault
from tests.lab.test_fault_table_aws import aws_fault, lead_boto_to
from tests.lab.tpu_cloud import TpuCloud

API = "/api/v1"
BERLIN = ZoneInfo("Europe/Berlin")
FIRST = date(2026, 10, 20)
"""The sixth night after it has half past two twice."""
PROVIDERS = ("aws", "gcp", "tpu")
MATRIX = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {name: nightly}
subject: {name: proof, version: "1.10", git: {url: "https://git.example/proof", rev: main}}
limits: {max_usd: "20.00", max_minutes: 30, infra_retries: 1}
platforms:
  - id: aws
    provider: aws
    instance_type: g5.xlarge
    locations: [us-east-1a, us-east-1b]
    market: [spot, on-demand]
  - id: gcp
    provider: gcp
    instance_type: g2-standard-4
    locations: [us-central1-a, us-central1-b]
    market: [spot, on-demand]
  - id: tpu
    provider: tpu
    accelerator_type: v5litepod-1
    locations: [us-west4-a, us-west4-b]
    market: [spot, on-demand]
jobs:
  - {id: unit}
"""
POLICY = """\
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {name: release, product: proof, owner: release team}
spec:
  subject: {require: [git_sha, wheel_sha256]}
  evidence: {max_age: 36h, attestation: required}
  platforms: [{id: aws}, {id: gcp}, {id: tpu}]
  jobs: [{id: unit, on: all}]
"""
SCHEDULE = {
    "name": "nightly",
    "cron": "30 2 * * *",
    "tz": "Europe/Berlin",
    "owner": "release team",
    "matrix": MATRIX,
    "gate": "release",
    "deadline": "06:00",
    "catch_up_hours": 6,
    "select": {"kind": "branch", "url": "https://git.example/proof", "branch": "main"},
}


def broken(plan: Any) -> Iterator[Any]:
    """The product is worse than it was: its test fails wherever it runs."""
    for event in passing(plan):
        said = dict(event["data"])
        if said.get("when") == "call":
            said |= {"outcome": "failed", "longrepr": "E   AssertionError: 3 != 4"}
        if said.get("name") == "finished":
            said["exit_code"] = 1
        yield {**event, "data": said}


@dataclass(slots=True)
class Mission:
    """The clouds, a controller over them, and what befalls both."""

    desk: Desk
    clouds: dict[str, Any]
    machines: HandMachines
    folder: Path
    settings: dict[str, str]
    subjects: MadeUpSubjects = field(default_factory=MadeUpSubjects)
    script: Script = passing
    computers: dict[str, FakeComputer] = field(default_factory=dict)
    on_tick: list[Callable[[str], None]] = field(default_factory=list)
    """Called with the cell that waits."""
    providers: dict[str, Provider] = field(default_factory=dict)
    engine: MemoryEngine = field(init=False)
    heard: int = 0
    deaths: int = 0
    """Of controllers."""
    working: str = ""
    """The cell that is at work."""

    def __post_init__(self) -> None:
        self._begin()
        self.engine = self._engine()

    def _begin(self) -> None:
        """A controller begins, whose providers remember nothing."""
        made = ProviderContext(
            book=self.desk.database.stores.static_hosts,
            settings={"project": PROJECT, "ingress_cidr": CIDR, **self.settings},
            now=self.desk.clock.now,
            templates=asset_dir("templates"),
        )
        self.providers = {name: Unmasked(registry.load(name, made)) for name in PROVIDERS}
        context = replace(
            self.desk.context,
            provider=lambda name: self.providers[name],
            wheels=ScriptedWheels(),
            gate=replace(self.desk.context.gate, subjects=self.subjects),
        )
        app = create_app(context, guard=None, revision=self.desk.database.ready)
        self.desk = replace(self.desk, context=context, app=app)

    def _engine(self) -> MemoryEngine:
        """What runs cells of this controller."""
        context = self.desk.context
        deps = flow_deps(
            self.folder,
            context.stores,
            context.clock,
            context.provider,
            lambda endpoint: FakeWorkspace(
                computer_at(
                    endpoint, self.machines, self.computers, partial(self._prepare, endpoint)
                )
            ),
        )
        deps = replace(deps, blobs=context.blobs, wheels=context.wheels, publish=context.publish)
        return MemoryEngine(partial(run_cell, deps), tick=self._tick)

    def _prepare(self, endpoint: object, computer: FakeComputer) -> None:
        assert isinstance(endpoint, SshEndpoint)
        computer.script, computer.lines_per_look = self.script, 1
        made = [one for one in self.machines.booted if endpoint.address in one.addresses][-1]
        vendor, name = ("google", "TPU v5e") if made.cloud == "tpu" else ("nvidia", "NVIDIA")
        computer.probe["devices"] = [{"vendor": vendor, "name": name, "uuid": "1"}]
        computer.ready = [
            {"check": check, "state": "done", "detail": ""}
            for check in ("cloud_init", "apt", "driver")
        ]

    def _tick(self, seconds: float) -> None:
        self.desk.clock.move(seconds=max(seconds, 1.0))
        for act in list(self.on_tick):
            act(self.working)

    # what befalls

    def once(self, name: str, state: CellState, act: Callable[[], None]) -> None:
        """Do it at the first tick at which the cell of this name is in the state."""

        def at_tick(cell_id: str) -> None:
            cell = self.desk.database.stores.cells.get(cell_id)
            if (cell.name, cell.state) == (name, state):
                self.on_tick.remove(at_tick)
                act()

        self.on_tick.append(at_tick)

    def dies(self) -> None:
        raise SimulatedCrashError("killed between a call and its answer")

    # what goes on

    def at(self, night: int, moment: time) -> None:
        """Not before this time of that day, by the clock on the wall."""
        then = datetime.combine(FIRST + timedelta(days=night), moment, tzinfo=BERLIN)
        self.desk.clock.time = max(self.desk.clock.time, then.astimezone(UTC))

    def look(self) -> None:
        """A controller looks at its schedules, and runs what they launched, until all is still."""
        fire(self.desk.context, lease_s=0.0)
        while self.desk.woken:
            self.working = self.desk.woken[0]
            try:
                self.engine.run(self.working)
            except SimulatedCrashError:
                self.deaths += 1
                logs = self.engine.step_logs
                self._begin()  # another controller goes on with what is written down
                self.engine = self._engine()
                self.engine.step_logs = logs
                continue
            self.desk.woken.pop(0)
            fire(self.desk.context, lease_s=0.0)

    def get(self, path: str, **params: object) -> Any:
        answer = self.desk.client.get(f"{API}{path}", params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def firing(self) -> dict[str, Any]:
        """The newest."""
        found: dict[str, Any] = self.get("/schedules/nightly")["firings"][0]
        return found

    def told(self, channel: str) -> list[str]:
        """What people were told since the last question."""
        log = self.desk.database.stores.outbox.log(channel, limit=1000)
        news = [one.news.announcement.state.value for one, _ in reversed(log)]
        fresh, self.heard = news[self.heard :], len(news)
        return fresh

    def leases(self, run: str) -> list[Lease]:
        found = self.desk.database.stores.leases.of_run(run)
        return [lease for some in found.values() for lease in some]


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """What befalls, and what must come of it."""

    befalls: Callable[[Mission], None] = lambda mission: None
    looks: bool = True
    """Whether a controller is there at half past two."""
    outcome: str = "PASS"
    """Of the firing."""
    told: tuple[str, ...] = ()
    machines: tuple[int, int, int] = (1, 1, 1)
    """How many of each cloud, in the order of `PROVIDERS`."""


def no_capacity(mission: Mission) -> None:
    aws = mission.clouds["aws"].faults
    aws.always("RunInstances", aws_fault("InsufficientInstanceCapacity"))


def preemption(mission: Mission) -> None:
    gcp, machines = mission.clouds["gcp"], mission.machines
    taken = lambda: gcp.preempt(machines.booted[-1].id, notice_s=0)  # noqa: E731
    mission.once("gcp", CellState.RUNNING, taken)


def regression(mission: Mission) -> None:
    mission.script = broken


def mended(mission: Mission) -> None:
    mission.script = passing


def capacity_again(mission: Mission) -> None:
    mission.clouds["aws"].faults.clear()


def dead_controller(mission: Mission) -> None:
    """The controller dies between the launch of a machine and the cloud's answer."""
    mission.clouds["aws"].faults.script("RunInstances", [Fault(drop=True, after=True)])
    mission.once("aws", CellState.PLACING, mission.dies)


NIGHTS = (
    Night(told=("pass",)),
    Night(befalls=no_capacity, outcome="INCONCLUSIVE", told=("inconclusive",), machines=(0, 1, 1)),
    Night(befalls=capacity_again, told=("pass",)),
    Night(befalls=preemption, machines=(1, 2, 1)),
    Night(looks=False, outcome="missed", told=("errored",), machines=(0, 0, 0)),
    Night(told=("pass",)),
    Night(befalls=regression, outcome="FAIL", told=("fail",)),
    Night(befalls=mended, told=("pass",)),
    Night(befalls=dead_controller),
    Night(),
)


@pytest.fixture
def mission(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mission]:
    with ExitStack() as stack:
        here = stack.enter_context(desk(tmp_path / "home", database_url))
        here.clock.time = datetime.combine(FIRST, time(12), tzinfo=BERLIN).astimezone(UTC)
        machines = HandMachines(here.clock)
        made = (AwsCloud, ComputeCloud, TpuCloud)
        clouds = [stack.enter_context(a(machines=machines, clock=here.clock.now)) for a in made]
        for cloud in clouds:
            cloud.follow_facts()
        aws, compute, tpu = clouds
        lead_boto_to(aws, monkeypatch)
        settings = {
            "gcp_project": PROJECT,
            "gcp_compute_endpoint": compute.endpoint_url,
            "gcp_tpu_endpoint": tpu.endpoint,
        }
        named = dict(zip(PROVIDERS, clouds, strict=True))
        yield Mission(here, named, machines, tmp_path, settings)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_nights_and_every_figure(mission: Mission) -> None:
    client = mission.desk.client
    answer = client.put(f"{API}/gates/release", json={"policy": POLICY, "name": "gate.yaml"})
    assert answer.status_code == 200, answer.text
    hook = {"name": "people", "target": "https://hook.example/release"}
    answer = client.post(f"{API}/channels", json=hook)
    assert answer.status_code == 201, answer.text
    channel = answer.json()["id"]
    answer = client.post(f"{API}/schedules", json=SCHEDULE)
    assert answer.status_code == 201, answer.text
    runs: list[str] = []
    for number, night in enumerate(NIGHTS, start=1):
        mission.subjects.commit = COMMITS[number]
        night.befalls(mission)
        before = {name: len(machine_lines(mission, name)) for name in PROVIDERS}
        mission.at(number, time(2, 31))
        if night.looks:
            mission.look()
        mission.at(number, time(12))
        mission.look()
        firing = mission.firing()
        assert firing["outcome"] == night.outcome, (number, firing)
        assert tuple(mission.told(channel)) == night.told, number
        made = [len(machine_lines(mission, name)) - before[name] for name in PROVIDERS]
        assert tuple(made) == night.machines, number
        if firing["run"]:
            runs.append(firing["run"])
            check_run(mission, firing, COMMITS[number])
    assert (mission.deaths, mission.on_tick) == (1, [])
    assert [cloud.faults.unused for cloud in mission.clouds.values()] == [0, 0, 0]
    check_dates(mission)
    check_money(mission, runs)
    check_nothing_left(mission)


def machine_lines(mission: Mission, provider: str) -> list[Any]:
    """What the cloud's meter says of machines, in the order they began."""
    kind = "node" if provider == "tpu" else "instance"
    return [line for line in mission.clouds[provider].billing() if line.kind == kind]


def check_dates(mission: Mission) -> None:
    """One firing a night at half past two on the wall, also where there are two of them."""
    firings = mission.get("/schedules/nightly")["firings"][::-1]
    due = [datetime.fromisoformat(one["due_at"]).astimezone(BERLIN) for one in firings]
    assert [at.date() for at in due] == [FIRST + timedelta(days=n) for n in range(1, 11)]
    assert {at.time() for at in due} == {time(2, 30)}
    offsets = [at.utcoffset() for at in due]
    assert offsets == [timedelta(hours=2)] * 5 + [offsets[5]] + [timedelta(hours=1)] * 4


def check_run(mission: Mission, firing: dict[str, Any], commit: str) -> None:
    """Its verdict, its signed statement, its report and its bill are of one piece."""
    run = mission.get(f"/runs/{firing['run']}")
    assert run["state"] == "finished"
    verdict = mission.get(f"/verdicts/{firing['verdict']}")
    assert (verdict["decision"], verdict["runs"]) == (firing["outcome"], [run["id"]])
    assert verdict["subject"]["git_sha"] == commit
    client = mission.desk.client
    signed = client.get(f"{API}/verdicts/{firing['verdict']}/statement").content
    found = verify_bundle(signed, client.get(f"{API}/keyring").content)
    assert found.verdict["decision"] == firing["outcome"]
    bill = mission.get("/costs", run=run["id"])
    leases = mission.leases(run["id"])
    total = sum((expected_cost(lease) for lease in leases), Decimal(0))
    assert Decimal(run["cost_usd"]) == Decimal(bill["bill"]["total_usd"]) == total > 0
    assert (bill["settled"], bill["simulated"]) == (True, False)
    summary = (mission.folder / "home" / "runs" / run["id"] / "report" / "SUMMARY.md").read_text()
    costs = client.get(f"{API}/runs/{run['id']}/reports/cost.md").text
    assert f"**Cost**: ${total:.4f}" in costs
    assert f"**${total:.2f}**" in summary


def check_money(mission: Mission, runs: Sequence[str]) -> None:
    """Each machine of the clouds' meters has one lease, which has all of its time and no more."""
    leases = [lease for run in runs for lease in mission.leases(run) if lease.machine_id]
    for name in PROVIDERS:
        paid = sorted(
            (one for one in leases if one.provider == name), key=lambda one: one.billed_from
        )
        lines = machine_lines(mission, name)
        assert len(paid) == len(lines), name
        for lease, line in zip(paid, lines, strict=True):
            assert lease.billed_from
            assert lease.billed_until
            assert line.ended_at
            assert lease.billed_from <= line.started_at
            assert line.ended_at <= lease.billed_until
            more = (lease.billed_until - lease.billed_from) - (line.ended_at - line.started_at)
            assert more <= timedelta(minutes=3), (name, lease, line)
    total = sum((expected_cost(lease) for lease in leases), Decimal(0))
    told = mission.get("/costs")
    assert Decimal(told["bill"]["total_usd"]) == total
    assert sum(Decimal(one["total_usd"]) for one in told["runs"]) == total
    by_provider = {one["provider"]: one for one in told["providers"]}
    assert {name: one["machines"] for name, one in by_provider.items()} == {
        name: len(machine_lines(mission, name)) for name in PROVIDERS
    }
    page = signed_in(mission.desk, "admin").json(urls.COSTS)
    assert Decimal(page["settled_usd"]) == total
    days = [Decimal(row["spent_usd"]) for row in page["tables"]["by_day"]["rows"]]
    assert (len(days), sum(days)) == (9, total)


def check_nothing_left(mission: Mission) -> None:
    """No machine, and after the grace of the sweeps nothing of the project at all."""
    assert mission.machines.live() == ()
    janitor = Janitor(
        stores=mission.desk.database.stores,
        provider=lambda name: mission.providers[name],
        traits={name: registry.traits(name) for name in PROVIDERS},
        project=PROJECT,
        controller=CONTROLLER,
        now=mission.desk.clock.now,
        settings=mission.settings,
    )
    for _ in range(2):  # one list in three lacks a zone
        janitor.sweep(known_only=True)
        janitor.sweep(known_only=True)
        mission.desk.clock.move(seconds=ORPHAN_GRACE.total_seconds() + 1)
    assert [one for cloud in mission.clouds.values() for one in cloud.alive()] == []
