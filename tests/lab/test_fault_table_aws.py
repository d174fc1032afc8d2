"""What becomes of a cell when EC2 refuses, fails, lies or takes its machine: row by row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.domain.cell import CellState
from orchestrator.domain.matrix import Platform
from orchestrator.domain.outcome import Outcome
from tests.integration.fake_world import SteppingClock
from tests.lab.aws.codes import DROPPED, FREE_PLAN, GATEWAY_PAGE, LOST, aws_fault
from tests.lab.aws_cloud import AwsCloud
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
from tests.lab.faults import ANY

LAUNCH, END = "RunInstances", "TerminateInstances"
RIG = Rig(
    provider="aws",
    platform=Platform(
        id="aws-a10g",
        provider="aws",
        instance_type="g5.xlarge",
        locations=("us-east-1a", "us-east-1b", "us-west-2a"),
        market=("spot", "on-demand"),
    ),
    creates=(LAUNCH,),
    deletes=(END,),
    shared=frozenset({"security-group"}),
    billed="instance",
)
EAST, WEST = "us-east-1", "us-west-2"
A, B, C = "us-east-1a spot", "us-east-1b spot", "us-west-2a spot"
AD, BD, CD = "us-east-1a on-demand", "us-east-1b on-demand", "us-west-2a on-demand"
CAPACITY = "InsufficientInstanceCapacity"
NO_SPOT_ROLE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    with a_table("aws") as table:
        yield table


def lead_boto_to(cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let boto3 find this cloud, and no credentials but its own."""
    for name, value in {
        "AWS_ENDPOINT_URL": cloud.endpoint_url,
        "AWS_ACCESS_KEY_ID": "lab",
        "AWS_SECRET_ACCESS_KEY": "lab",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    }.items():
        monkeypatch.setenv(name, value)


@contextmanager
def a_world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultWorld]:
    """An account, and a controller that has nothing but it."""
    folder.mkdir()
    clock = SteppingClock()
    machines = HandMachines(clock)
    with AwsCloud(machines=machines, clock=clock.now) as cloud:
        cloud.follow_facts()
        lead_boto_to(cloud, monkeypatch)
        world = FaultWorld(folder, RIG, cloud, machines, clock, {})
        yield world
        world.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultWorld]:
    with a_world(tmp_path / "world", monkeypatch) as world:
        yield world


def refused(*codes: str, where: str | tuple[str, ...] | None = None) -> Arrange:
    return lambda here: here.cloud.refuse(LAUNCH, *codes, where=where)


def always(code: str, where: str | None = None, name: str = LAUNCH) -> Arrange:
    return lambda here: here.cloud.faults.always(name, aws_fault(code), where=where)


def scripted(*faults: object, looks: int = 0) -> Arrange:
    def arrange(here: FaultWorld) -> None:
        here.cloud.invisible_for_looks = looks
        here.cloud.faults.script(LAUNCH, faults)

    return arrange


def quotas(*zero: tuple[str, str]) -> Arrange:
    return lambda here: here.cloud.quotas.update(dict.fromkeys(zero, 0.0))


def dies(*codes: str) -> Arrange:
    return lambda here: here.cloud.die_in_pending(*codes)


EAST_TOO = (B, AD, BD)
EVERYWHERE = (A, B, C, AD, BD, CD)
PREEMPTED_LOG = (f"{A} chosen", f"{A} last worn", f"{B} chosen")
ROWS = (
    Row("none", lambda here: None, ("ok",), (f"{A} chosen",)),
    Row(
        "capacity in one zone",
        refused(CAPACITY),
        (CAPACITY, "ok"),
        (f"{A} refused capacity", f"{B} chosen"),
    ),
    Row(
        "capacity: spot only",
        always(CAPACITY, "spot"),
        (CAPACITY,) * 3 + ("ok",),
        (*(f"{x} refused capacity" for x in (A, B, C)), f"{AD} chosen"),
    ),
    Row(
        "vCPU quota of spot in one region",
        quotas((EAST, "L-3819A6DF")),
        ("MaxSpotInstanceCountExceeded", "ok"),
        (f"{A} refused quota", f"{B} skipped quota", f"{C} chosen"),
    ),
    Row(
        "capacity in all zones",
        always(CAPACITY),
        (CAPACITY,) * 12,
        (
            *(f"{x} refused capacity" for x in EVERYWHERE),
            *(f"{x} last capacity" for x in EVERYWHERE),
            *(f"{x} refused capacity" for x in EVERYWHERE),
        ),
        **stopped("capacity", attempts=2),
    ),
    Row(
        "vCPU quota everywhere",
        quotas(*((r, q) for r in (EAST, WEST) for q in ("L-3819A6DF", "L-DB2E81BA"))),
        ("MaxSpotInstanceCountExceeded",) * 2 + ("VcpuLimitExceeded",) * 2,
        (
            f"{A} refused quota",
            f"{B} skipped quota",
            f"{C} refused quota",
            f"{AD} refused quota",
            f"{BD} skipped quota",
            f"{CD} refused quota",
        ),
        **stopped("quota"),
    ),
    Row(
        "throttling burst",
        refused(*["RequestLimitExceeded"] * 5),
        ("RequestLimitExceeded",) * 5 + ("ok",),
        (f"{A} again unavailable", f"{A} chosen"),
    ),
    Row(
        "reads are throttled",
        lambda here: here.cloud.refuse("DescribeInstances", *["RequestLimitExceeded"] * 9),
        ("ok",),
        (f"{A} again unavailable", f"{A} chosen"),
    ),
    Row(
        "500, and it did succeed",
        scripted(aws_fault("InternalError", after=True)),
        ("InternalError+made",),
        (f"{A} again unavailable", f"{A} chosen"),
    ),
    Row(
        "a gateway's page, and it did succeed",
        scripted(replace(GATEWAY_PAGE, after=True)),
        ("page+made",),
        (f"{A} again unavailable", f"{A} chosen"),
    ),
    Row(
        "time-out, and it did succeed",
        scripted(aws_fault("RequestTimeout", after=True)),
        ("RequestTimeout+made",),
        (f"{A} again unavailable", f"{A} chosen"),
    ),
    Row(
        "lost response to create",
        scripted(LOST),
        ("dropped+made",),
        (f"{A} again unavailable", f"{A} chosen"),
    ),
    Row(
        "request lost on its way",
        scripted(DROPPED),
        ("dropped", "ok"),
        (f"{A} again unavailable", f"{A} chosen"),
    ),
    Row(
        "lost response; the machine is not shown yet",
        scripted(LOST, looks=3),
        ("dropped+made", "ok"),
        (f"{A} again unavailable", f"{A} chosen"),
    ),
    Row(
        "lost response; then refused",
        scripted(LOST, aws_fault(CAPACITY), looks=2),
        ("dropped+made", CAPACITY),
        (f"{A} again unavailable", f"{A} refused capacity", f"{A} chosen"),
    ),
    Row(
        "request lost; then refused",
        scripted(DROPPED, aws_fault(CAPACITY)),
        ("dropped", CAPACITY, "ok"),
        (f"{A} again unavailable", f"{A} refused capacity", f"{B} chosen"),
    ),
    Row(
        "duplicate create, with another request",
        scripted(LOST, aws_fault("IdempotentParameterMismatch"), looks=1),
        ("dropped+made", "IdempotentParameterMismatch"),
        (f"{A} again unavailable", f"{A} chosen"),
    ),
    Row(
        "AuthFailure in one region",
        always("AuthFailure", EAST),
        ("AuthFailure", "ok"),
        (f"{A} refused auth", *(f"{x} skipped auth" for x in EAST_TOO), f"{C} chosen"),
    ),
    Row(
        "a policy of the organisation denies one region",
        always("UnauthorizedOperation", EAST),
        ("UnauthorizedOperation", "ok"),
        (f"{A} refused auth", *(f"{x} skipped auth" for x in EAST_TOO), f"{C} chosen"),
    ),
    Row(
        "the account has no role for spot, and may not make it",
        always(NO_SPOT_ROLE, "spot"),
        (NO_SPOT_ROLE,) * 2 + ("ok",),
        (f"{A} refused auth", f"{B} skipped auth", f"{C} refused auth", f"{AD} chosen"),
    ),
    Row(
        "the account is on the free plan",
        lambda here: here.cloud.faults.always(LAUNCH, FREE_PLAN),
        ("InvalidParameterCombination",),
        (f"{A} refused auth",),
        **stopped("auth"),
        said="free plan has no GPU instances",
    ),
    Row(
        "AuthFailure everywhere",
        always("AuthFailure"),
        ("AuthFailure",) * 2,
        (
            f"{A} refused auth",
            *(f"{x} skipped auth" for x in EAST_TOO),
            f"{C} refused auth",
            f"{CD} skipped auth",
        ),
        **stopped("auth"),
        said="AuthFailure",
    ),
    Row(
        "expired credentials at the launch",
        always("ExpiredToken"),
        ("ExpiredToken",) * 2,
        (f"{A} refused auth",),
        **stopped("auth"),
        said="ExpiredToken",
    ),
    Row(
        "expired credentials at every call",
        always("ExpiredToken", name=ANY),
        (),
        ("aws refused auth",),
        **stopped("auth"),
        said="ExpiredToken",
    ),
    Row(
        "clock skew: our request is expired",
        always("RequestExpired"),
        ("RequestExpired",),
        (f"{A} refused auth",),
        **stopped("auth"),
        said="clock",
    ),
    Row("clock skew: the cloud is 10 min ahead", skewed(10), ("ok",), (f"{A} chosen",)),
    Row("clock skew: the cloud is 10 min behind", skewed(-10), ("ok",), (f"{A} chosen",)),
    Row(
        "image gone in one region",
        always("InvalidAMIID.NotFound", EAST),
        ("InvalidAMIID.NotFound", "ok"),
        (f"{A} refused config", *(f"{x} skipped config" for x in EAST_TOO), f"{C} chosen"),
    ),
    Row(
        "image gone",
        always("InvalidAMIID.NotFound"),
        ("InvalidAMIID.NotFound",) * 2,
        (
            f"{A} refused config",
            *(f"{x} skipped config" for x in EAST_TOO),
            f"{C} refused config",
            f"{CD} skipped config",
        ),
        **stopped("config"),
        said="InvalidAMIID.NotFound",
    ),
    Row(
        "dies in pending: capacity",
        dies("Server.InsufficientInstanceCapacity"),
        ("ok", "ok"),
        (f"{A} refused capacity", f"{B} chosen"),
    ),
    Row(
        "dies in pending: volume quota",
        dies("Client.VolumeLimitExceeded"),
        ("ok", "ok"),
        (f"{A} refused quota", f"{B} chosen"),
    ),
    Row(
        "dies in pending: it failed",
        dies("Server.InternalError"),
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
        lambda here: here.cloud.refuse(END, *["InternalError"] * 3),
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


def test_what_the_machines_shared_goes_with_one_sweep_after_its_grace(here: FaultWorld) -> None:
    always(CAPACITY, EAST)(here)
    assert here.go().outcome == "passed"
    assert here.left() == ["security-group"] * 2
    swept = here.sweep_shared()
    assert [machine.kind for machine in swept] == ["firewall"] * 2
    assert here.left() == []


def test_a_machine_that_shuts_down_for_minutes_is_asked_ever_more_rarely(here: FaultWorld) -> None:
    here.cloud.shutting_down_s = 300
    assert here.go().outcome is Outcome.PASSED
    assert not [kind for kind in here.left() if kind == "instance"]
    assert len(here.answers(["TerminateInstances"])) < 40
