"""What becomes of a cell when Compute Engine refuses, fails, lies or takes its machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.domain.cell import CellState
from orchestrator.domain.matrix import Platform
from tests.integration.fake_world import SteppingClock
from tests.lab.compute_cloud import ComputeCloud
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
from tests.lab.google.codes import gce_fault

LAUNCH, END = "instances.insert", "instances.delete"
RIG = Rig(
    provider="gcp",
    platform=Platform(
        id="gcp-l4",
        provider="gcp",
        instance_type="g2-standard-4",
        locations=("us-central1-a", "us-central1-b", "europe-west4-a"),
        market=("spot", "on-demand"),
    ),
    creates=(LAUNCH,),
    deletes=(END,),
    shared=frozenset({"firewall"}),
    billed="instance",
)
A, B, C = "us-central1-a spot", "us-central1-b spot", "europe-west4-a spot"
AD, BD, CD = "us-central1-a on-demand", "us-central1-b on-demand", "europe-west4-a on-demand"
SPOT, ON_DEMAND = (A, B, C), (AD, BD, CD)
PREEMPTED_LOG = (f"{A} chosen", f"{A} last worn", f"{B} chosen")
AGAIN_LOG = (f"{A} again unavailable", f"{A} chosen")
DROPPED, LOST = Fault(drop=True), Fault(drop=True, after=True)
PAGE = Fault(status=502, body="<html><title>502 Bad Gateway</title></html>", after=True)


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    with a_table("gcp") as table:
        yield table


@contextmanager
def a_world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultWorld]:
    """A project, and a controller that has nothing but it."""
    folder.mkdir()
    clock = SteppingClock()
    machines = HandMachines(clock)
    with ComputeCloud(machines=machines, clock=clock.now) as cloud:
        cloud.follow_facts()
        settings = {"gcp_project": "lab", "gcp_compute_endpoint": cloud.endpoint_url}
        world = FaultWorld(folder, RIG, cloud, machines, clock, settings)
        yield world
        world.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultWorld]:
    with a_world(tmp_path / "world", monkeypatch) as world:
        yield world


def refused(*codes: str) -> Arrange:
    return lambda here: here.cloud.refuse(LAUNCH, *codes)


def always(code: str, where: str | None = None, name: str = LAUNCH, said: str = "") -> Arrange:
    return lambda here: here.cloud.faults.always(name, gce_fault(code, message=said), where=where)


def scripted(*faults: Fault, looks: int = 0) -> Arrange:
    def arrange(here: FaultWorld) -> None:
        here.cloud.invisible_for_looks = looks
        here.cloud.faults.script(LAUNCH, faults)

    return arrange


def dry(*places: str | tuple[str, str]) -> Arrange:
    return lambda here: here.cloud.dry.update(places)


def quota(metric: str, *, region: str = "") -> Arrange:
    return lambda here: here.cloud.quotas.set(metric, 0, region=region)


def dies(*kinds: str) -> Arrange:
    return lambda here: here.cloud.die_in_staging(*kinds)


def expired(here: FaultWorld) -> None:
    here.cloud.faults.always(ANY, gce_fault("authError"))


ROWS = (
    Row("none", lambda here: None, ("ok",), (f"{A} chosen",)),
    Row(
        "capacity in one zone",
        dry("us-central1-a"),
        ("ok", "ok"),
        (f"{A} refused capacity", f"{B} chosen"),
    ),
    Row(
        "capacity: spot only",
        dry(*((zone.split()[0], "spot") for zone in (A, B, C))),
        ("ok",) * 4,
        (*(f"{x} refused capacity" for x in SPOT), f"{AD} chosen"),
    ),
    Row(
        "capacity in all zones",
        dry("us-central1-a", "us-central1-b", "europe-west4-a"),
        ("ok",) * 12,
        (
            *(f"{x} refused capacity" for x in (*SPOT, *ON_DEMAND)),
            *(f"{x} last capacity" for x in (*SPOT, *ON_DEMAND)),
            *(f"{x} refused capacity" for x in (*SPOT, *ON_DEMAND)),
        ),
        **stopped("capacity", attempts=2),
    ),
    Row(
        "GPU quota of spot in one region",
        lambda here: here.cloud.quotas.use("PREEMPTIBLE_NVIDIA_L4_GPUS", 1, region="us-central1"),
        ("ok",) * 2,
        (f"{A} refused quota", f"{B} skipped quota", f"{C} chosen"),
    ),
    Row(
        "GPU quota at the call",
        always("quotaExceeded", "us-central1"),
        ("quotaExceeded", "ok"),
        (f"{A} refused quota", f"{B} skipped quota", f"{C} chosen"),
    ),
    Row(
        "quota of the whole project",
        quota("GPUS_ALL_REGIONS"),
        ("ok",),
        (f"{A} refused quota", *(f"{x} skipped quota" for x in (B, C, *ON_DEMAND))),
        **stopped("quota"),
        said="GPUS_ALL_REGIONS",
    ),
    Row(
        "throttling burst",
        refused(*["rateLimitExceeded"] * 5),
        ("rateLimitExceeded",) * 5 + ("ok",),
        AGAIN_LOG,
    ),
    Row(
        "reads are throttled",
        lambda here: here.cloud.refuse("instances.get", *["rateLimitExceeded"] * 9),
        ("ok",),
        (f"{A} chosen",),
    ),
    Row(
        "500, and it did succeed",
        scripted(gce_fault("internalError", after=True)),
        ("internalError+made", "ok"),
        AGAIN_LOG,
    ),
    Row("a gateway's page, and it did succeed", scripted(PAGE), ("page+made", "ok"), AGAIN_LOG),
    Row(
        "time-out, and it did succeed",
        scripted(Fault("backendError", "Deadline exceeded", 504, after=True)),
        ("backendError+made", "ok"),
        AGAIN_LOG,
    ),
    Row("lost response to create", scripted(LOST), ("dropped+made", "ok"), AGAIN_LOG),
    Row("request lost on its way", scripted(DROPPED), ("dropped", "ok"), AGAIN_LOG),
    Row(
        "lost response; the machine is not shown yet",
        scripted(LOST, looks=3),
        ("dropped+made", "ok"),
        AGAIN_LOG,
    ),
    Row(
        "lost response; then refused",
        scripted(LOST, gce_fault("quotaExceeded")),
        ("dropped+made", "quotaExceeded"),
        (f"{A} again unavailable", f"{A} refused quota", f"{A} chosen"),
    ),
    Row(
        "request lost; then refused",
        scripted(DROPPED, gce_fault("quotaExceeded")),
        ("dropped", "quotaExceeded", "ok"),
        (
            f"{A} again unavailable",
            f"{A} refused quota",
            f"{B} skipped quota",
            f"{C} chosen",
        ),
    ),
    Row(
        "duplicate create: the name is there",
        scripted(LOST, gce_fault("alreadyExists")),
        ("dropped+made", "alreadyExists"),
        AGAIN_LOG,
    ),
    Row(
        "duplicate create: there, and not shown yet",
        scripted(LOST, gce_fault("alreadyExists"), gce_fault("alreadyExists"), looks=1),
        ("dropped+made", "alreadyExists", "alreadyExists"),
        AGAIN_LOG,
    ),
    Row(
        "credentials refused at the launch",
        always("authError"),
        ("authError",),
        (f"{A} refused auth",),
        **stopped("auth"),
        said="GOOGLE_APPLICATION_CREDENTIALS",
    ),
    Row(
        "a permission is missing",
        always("forbidden"),
        ("forbidden",),
        (f"{A} refused auth",),
        **stopped("auth"),
        said="roles/compute.instanceAdmin.v1",
    ),
    Row(
        "expired credentials at every call",
        expired,
        (),
        (f"{A} refused auth",),
        **stopped("auth"),
        said="GOOGLE_APPLICATION_CREDENTIALS",
    ),
    Row("clock skew: the cloud is 10 min ahead", skewed(10), ("ok",), (f"{A} chosen",)),
    Row("clock skew: the cloud is 10 min behind", skewed(-10), ("ok",), (f"{A} chosen",)),
    Row(
        "image gone",
        always("notFound", said="The resource 'projects/p/global/images/x' was not found"),
        ("notFound",),
        (f"{A} refused config",),
        **stopped("config"),
        said="image",
    ),
    Row(
        "dies in staging: host error",
        dies("compute.instances.hostError"),
        ("ok", "ok"),
        (f"{A} refused boot", f"{B} chosen"),
        made=2,
    ),
    Row(
        "dies while provisioning: it failed",
        refused("INTERNAL_ERROR"),
        ("ok", "ok"),
        (f"{A} refused boot", f"{B} chosen"),
    ),
    Row(
        "preempted while placing",
        refused("UNSUPPORTED_OPERATION"),
        ("ok", "ok"),
        (f"{A} refused capacity", f"{B} chosen"),
    ),
    Row(
        "preempted while booting",
        taken_in(CellState.BOOTING, slow(boot_s=10)),
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
        lambda here: here.cloud.refuse(END, *["backendError"] * 3),
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
        cancelled_unseen,
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
    assert {machine.kind for machine in swept} <= {"firewall"}
    assert here.left() == []
