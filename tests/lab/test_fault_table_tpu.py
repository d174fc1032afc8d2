"""What becomes of a cell when Cloud TPU refuses, fails, lies or takes its machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.domain.cell import CellState
from orchestrator.domain.matrix import Platform
from tests.integration.fake_world import SteppingClock
from tests.lab.fault_table import (
    BUSY,
    Arrange,
    Row,
    Seen,
    a_table,
    cancelled_unseen,
    check,
    held_files,
    skewed,
    slow,
    stopped,
    taken_always,
    taken_in,
)
from tests.lab.fault_world import FaultWorld, HandMachines, Rig
from tests.lab.faults import ANY, Fault
from tests.lab.google.codes import tpu_fault
from tests.lab.google.tpu_queue import PROVISIONING
from tests.lab.tpu_cloud import TpuCloud

LAUNCH, END = "CreateQueuedResource", "DeleteQueuedResource"
ZONES = ("us-west4-a", "us-west4-b", "us-central1-a")
RIG = Rig(
    provider="tpu",
    platform=Platform(
        id="gcp-tpu-v5e",
        provider="tpu",
        accelerator_type="v5litepod-1",
        locations=ZONES,
        market=("spot", "on-demand"),
    ),
    creates=(LAUNCH, "CreateNode"),
    deletes=(END, "DeleteNode"),
    shared=frozenset(),
    billed="node",
)
A, B, C = (f"{zone} spot" for zone in ZONES)
AD, BD, CD = (f"{zone} on-demand" for zone in ZONES)
EVERYWHERE = (A, B, C, AD, BD, CD)
PREEMPTED_LOG = (f"{A} chosen", f"{A} last worn", f"{B} chosen")
AGAIN_LOG = (f"{A} again unavailable", f"{A} chosen")
DROPPED, LOST = Fault(drop=True), Fault(drop=True, after=True)
CALLED = "RESOURCE_EXHAUSTED"


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    with a_table("tpu") as table:
        yield table


@contextmanager
def a_world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultWorld]:
    """A project, and a controller that has nothing but it."""
    folder.mkdir()
    clock = SteppingClock()
    machines = HandMachines(clock)
    with TpuCloud(machines=machines, clock=clock.now) as cloud:
        cloud.follow_facts()
        settings = {"gcp_project": "lab", "gcp_tpu_endpoint": cloud.endpoint}
        world = FaultWorld(folder, RIG, cloud, machines, clock, settings)
        yield world
        world.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultWorld]:
    with a_world(tmp_path / "world", monkeypatch) as world:
        yield world


def always(code: str, where: str | None = None, name: str = LAUNCH, said: str = "") -> Arrange:
    fault = tpu_fault(code, message=said)
    return lambda here: here.cloud.faults.always(name, fault, where=where)


def scripted(*faults: Fault, looks: int = 0) -> Arrange:
    def arrange(here: FaultWorld) -> None:
        here.cloud.invisible_for_looks = looks
        here.cloud.faults.script(LAUNCH, faults)

    return arrange


def late(*codes: str) -> Arrange:
    """Queued resources that are accepted, and fail when they are to be provisioned."""
    faults = [tpu_fault(code, in_operation=True) for code in codes]
    return lambda here: here.cloud.faults.script(PROVISIONING, faults)


def dry(*places: str | tuple[str, str]) -> Arrange:
    return lambda here: here.cloud.dry.update(places)


def quota(*places: tuple[str, str]) -> Arrange:
    def arrange(here: FaultWorld) -> None:
        for zone, market in places:
            here.cloud.quotas.set(zone, 0, market=market)

    return arrange


# As Google spells the refusals of one zone; the second comes of LOCATION_POLICY_VIOLATED too.
NOT_PERMITTED = (
    'User does not have permission to submit requests for accelerator type "v5litepod-1" in '
    f"location {ZONES[0]}"
)
NO_LOCATION = f"Permission denied on 'locations/{ZONES[0]}' (or it may not exist)."
RATE = tpu_fault("PERMISSION_DENIED", message="Quota exceeded for quota metric 'writes per minute'")


def made_at_once(arrange: Arrange) -> Arrange:
    """A node that is READY before it can be cancelled."""

    def arranged(here: FaultWorld) -> None:
        here.cloud.nodes.operation_s = 0
        arrange(here)

    return arranged


ROWS = (
    Row("none", lambda here: None, ("ok",), (f"{A} chosen",)),
    Row(
        "capacity in one zone",
        late("RESOURCE_EXHAUSTED"),
        ("ok", "ok"),
        (f"{A} refused capacity", f"{B} chosen"),
    ),
    Row(
        "no capacity in one zone, and nobody says so",
        dry(ZONES[0]),
        ("ok", "ok"),
        (f"{A} refused capacity", f"{B} chosen"),
    ),
    Row(
        "capacity: spot only",
        late(*["RESOURCE_EXHAUSTED"] * 3),
        ("ok",) * 4,
        (*(f"{x} refused capacity" for x in (A, B, C)), f"{AD} chosen"),
    ),
    Row(
        "capacity in all zones",
        late(*["RESOURCE_EXHAUSTED"] * 12),
        ("ok",) * 12,
        (
            *(f"{x} refused capacity" for x in EVERYWHERE),
            *(f"{x} last capacity" for x in EVERYWHERE),
            *(f"{x} refused capacity" for x in EVERYWHERE),
        ),
        **stopped("capacity", attempts=2),
    ),
    Row(
        "chip quota of spot in one zone",
        quota((ZONES[0], "spot")),
        (CALLED, "ok"),
        (f"{A} refused quota", f"{B} chosen"),
    ),
    Row(
        "chip quota everywhere",
        quota(*((zone, market) for zone in ZONES for market in ("spot", "on-demand"))),
        (CALLED,) * 6,
        tuple(f"{x} refused quota" for x in EVERYWHERE),
        **stopped("quota"),
    ),
    Row(
        "quota of the whole project",
        always(CALLED, said="Quota 'TPUS_ALL_REGIONS' exceeded. Limit: 0.0 globally."),
        (CALLED,),
        (f"{A} refused quota", *(f"{x} skipped quota" for x in EVERYWHERE[1:])),
        **stopped("quota"),
        said="ALL_REGIONS",
    ),
    Row(
        "throttling burst",
        scripted(*[RATE] * 5),
        ("PERMISSION_DENIED",) * 5 + ("ok",),
        AGAIN_LOG,
    ),
    Row(
        "reads are throttled",
        lambda here: here.cloud.faults.script("GetQueuedResource", [RATE] * 9),
        ("ok",),
        (f"{A} chosen",),
    ),
    Row(
        "500, and it did succeed",
        scripted(tpu_fault("INTERNAL", after=True)),
        ("INTERNAL", "ok"),
        AGAIN_LOG,
    ),
    Row(
        "time-out, and it did succeed",
        scripted(tpu_fault("DEADLINE_EXCEEDED", after=True)),
        ("DEADLINE_EXCEEDED", "ok"),
        AGAIN_LOG,
    ),
    Row("lost response to create", scripted(LOST), ("dropped", "ok"), AGAIN_LOG),
    Row("request lost on its way", scripted(DROPPED), ("dropped", "ok"), AGAIN_LOG),
    Row(
        "lost response; the machine is not shown yet",
        scripted(LOST, looks=3),
        ("dropped", "ok"),
        AGAIN_LOG,
    ),
    Row(
        "lost response; then refused",
        scripted(LOST, tpu_fault(CALLED)),
        ("dropped", CALLED),
        (f"{A} again unavailable", f"{A} refused quota", f"{A} chosen"),
    ),
    Row(
        "request lost; then refused",
        scripted(DROPPED, tpu_fault(CALLED)),
        ("dropped", CALLED, "ok"),
        (f"{A} again unavailable", f"{A} refused quota", f"{B} chosen"),
    ),
    Row(
        "duplicate create: the id is there",
        scripted(LOST, tpu_fault("ALREADY_EXISTS")),
        ("dropped", "ALREADY_EXISTS"),
        AGAIN_LOG,
    ),
    Row(
        "credentials refused at the launch",
        always("UNAUTHENTICATED"),
        ("UNAUTHENTICATED",),
        (f"{A} refused auth",),
        **stopped("auth"),
        said="gcloud auth",
    ),
    Row(
        "a zone refuses the project this type",
        always("PERMISSION_DENIED", ZONES[0], said=NOT_PERMITTED),
        ("PERMISSION_DENIED", "ok"),
        (f"{A} refused capacity", f"{B} chosen"),
    ),
    Row(
        "a zone is closed to the project",
        always("PERMISSION_DENIED", ZONES[0], said=NO_LOCATION),
        ("PERMISSION_DENIED", "ok"),
        (f"{A} refused capacity", f"{AD} skipped capacity", f"{B} chosen"),
    ),
    Row(
        "a permission is missing",
        always("PERMISSION_DENIED"),
        ("PERMISSION_DENIED",),
        (f"{A} refused auth",),
        **stopped("auth"),
        said="roles/tpu.admin",
    ),
    Row(
        "expired credentials at every call",
        always("UNAUTHENTICATED", name=ANY),
        ("UNAUTHENTICATED",),
        (f"{A} refused auth",),
        **stopped("auth"),
        said="UNAUTHENTICATED",
    ),
    Row("clock skew: the cloud is 10 min ahead", skewed(10), ("ok",), (f"{A} chosen",)),
    Row("clock skew: the cloud is 10 min behind", skewed(-10), ("ok",), (f"{A} chosen",)),
    Row(
        "image gone",
        always("INVALID_ARGUMENT", said="Runtime version v2-alpha-tpuv5-lite does not exist"),
        ("INVALID_ARGUMENT",),
        (f"{A} refused config",),
        **stopped("config"),
        said="Runtime version",
    ),
    Row(
        "dies while provisioning: it failed",
        late("INTERNAL"),
        ("ok", "ok"),
        (f"{A} refused boot", f"{B} chosen"),
    ),
    Row(
        "preempted while placing",
        taken_in(CellState.PLACING, slow(boot_s=10)),
        ("ok", "ok"),
        (f"{A} refused boot", f"{B} chosen"),
        made=2,
    ),
    Row(
        "preempted while booting",
        taken_in(CellState.BOOTING, slow(reachable=False)),
        ("ok", "ok"),
        PREEMPTED_LOG,
        attempts=2,
        made=2,
    ),
    Row(
        "preempted while preparing",
        taken_in(CellState.PREPARING, slow(ready=BUSY)),
        ("ok", "ok"),
        PREEMPTED_LOG,
        attempts=2,
        made=2,
    ),
    Row(
        "preempted while running",
        taken_in(CellState.RUNNING, slow()),
        ("ok", "ok"),
        PREEMPTED_LOG,
        attempts=2,
        made=2,
    ),
    Row(
        "preempted while collecting",
        taken_in(CellState.COLLECTING, held_files),
        ("ok",),
        (f"{A} chosen",),
    ),
    Row(
        "preempted at every attempt",
        taken_always,
        ("ok", "ok"),
        PREEMPTED_LOG,
        outcome="errored",
        reason="preempted",
        attempts=2,
        made=2,
    ),
    Row(
        "terminate fails three times",
        lambda here: here.cloud.refuse(END, *["UNAVAILABLE"] * 3),
        ("ok",),
        (f"{A} chosen",),
    ),
    Row(
        "terminate's answer is lost",
        lambda here: here.cloud.faults.script(END, [LOST]),
        ("ok",),
        (f"{A} chosen",),
    ),
    Row("NotFound at the first looks", scripted(looks=4), ("ok",), (f"{A} chosen",)),
    Row(
        "NotFound while it is ended at once",
        made_at_once(cancelled_unseen),
        ("ok",),
        (),
        outcome="cancelled",
        reason="cancelled",
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.fault)
def test_row(row: Row, here: FaultWorld, seen: Seen) -> None:
    check(row, here, seen)
    swept = here.sweep_shared()
    assert {machine.kind for machine in swept} <= set()
    assert here.left() == []
