"""A transcript played to the lab's clouds, and the kill switch watched there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError

from orchestrator.domain.machine import MachineState
from tests.cloud_smoke import kill_switch
from tests.cloud_smoke.__main__ import swept
from tests.cloud_smoke.clouds import KILL_PROJECT, left, provider, times
from tests.cloud_smoke.replay import lab_script
from tests.contract.provider_cases import ask, load, until
from tests.integration.aws_world import account
from tests.lab.aws_cloud import AwsCloud
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.google.codes import gce_fault
from tests.lab.machines import NoMachines

MADE_UP: list[dict[str, Any]] = [
    {"cloud": "aws", "call": "DescribeRegions", "code": "ok", "duration_s": 4.0, "status": 200},
    {"cloud": "aws", "call": "DescribeRegions", "code": "ok", "duration_s": 0.1, "status": 200},
    {"cloud": "aws", "call": "DescribeVpcs", "code": "RequestLimitExceeded", "duration_s": 0.2},
    {"cloud": "aws", "call": "DescribeVpcs", "code": "NeverHeardOf", "duration_s": 0.0},
    {"cloud": "aws", "call": "DescribeVpcs", "code": "no answer", "duration_s": 0.0},
    {"cloud": "aws", "fact": "boot_s", "value": 41.5},
    {
        "cloud": "gcp",
        "call": "instances.insert",
        "code": "ZONE_RESOURCE_POOL_EXHAUSTED",
        "duration_s": 0.3,
    },
    {"cloud": "gcp", "fact": "boot_s", "value": 3.0},
]


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    path = tmp_path / "made-up.jsonl"
    lines = [{"at": float(n), "status": 400, **line} for n, line in enumerate(MADE_UP)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsCloud]:
    with account(monkeypatch) as cloud:
        yield cloud


def test_the_lab_answers_as_the_cloud_did_and_as_slowly(aws: AwsCloud, transcript: Path) -> None:
    script = lab_script(transcript, "aws", pace=0.1)
    assert script.boot_delay_s == pytest.approx(4.15)
    script.play(aws.faults)
    once = Config(retries={"total_max_attempts": 1})
    ec2 = boto3.client("ec2", region_name="us-east-1", config=once)
    begin = time.monotonic()
    ec2.describe_regions()
    assert time.monotonic() - begin >= 0.4
    ec2.describe_regions()
    for code in ("RequestLimitExceeded", "NeverHeardOf"):
        with pytest.raises(ClientError, match=code):
            ec2.describe_vpcs()
    with pytest.raises(HTTPClientError):
        ec2.describe_vpcs()
    assert ec2.describe_vpcs()["Vpcs"]
    assert aws.faults.unused == 0


def test_a_refusal_in_an_operation_is_one_again(transcript: Path) -> None:
    script = lab_script(transcript, "gcp", pace=0.01)
    with ComputeCloud(machines=NoMachines(boot_delay_s=script.boot_delay_s)) as cloud:
        script.play(cloud.faults)
        gcp = load("gcp", {"gcp_compute_endpoint": cloud.endpoint_url})
        seen = gcp.launch(ask(gcp, "gcp"))
        end = time.monotonic() + 120
        while seen.state is not MachineState.TERMINATED and time.monotonic() < end:
            seen = gcp.inspect(seen.id)
        assert seen.ended == "capacity"
        assert cloud.faults.unused == 0
        gcp.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 1"),
        ('{"cloud": "aws"}', "neither a call nor a fact"),
        ('{"cloud": "gcp", "fact": "boot_s", "value": 1}', "has nothing of aws"),
    ],
)
def test_what_is_no_transcript_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        lab_script(path, "aws")


# what a provider itself tells of a machine's life


def test_compute_engine_tells_by_its_operations(compute: ComputeCloud) -> None:
    gcp = provider("gcp")
    machine = until(gcp, gcp.launch(ask(gcp, "gcp")), MachineState.READY)
    gcp.terminate(machine.id)
    until(gcp, machine, MachineState.TERMINATED)
    told = times("gcp", machine.id)
    assert told.began is not None, told
    assert told.ended is not None, told
    assert told.began <= told.ended
    assert times("gcp", "us-west1-a/instances/nobody").why_not == "its operations are []"


# the kill switch


@pytest.fixture
def compute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ComputeCloud]:
    monkeypatch.setenv("SEATRIAL_HOME", str(tmp_path))
    monkeypatch.setenv("SEATRIAL_GCP_PROJECT", "lab")
    monkeypatch.setenv("SEATRIAL_INGRESS_CIDR", "203.0.113.7/32")
    with ComputeCloud(machines=NoMachines()) as cloud:
        monkeypatch.setenv("SEATRIAL_GCP_COMPUTE_ENDPOINT", cloud.endpoint_url)
        yield cloud


@pytest.mark.slow
def test_a_cloud_that_ends_what_nobody_owns_is_ok(compute: ComputeCloud) -> None:
    abandoned = kill_switch.abandon("gcp", minutes=0.6)
    assert isinstance(abandoned, kill_switch.Abandoned)
    check = kill_switch.outlived(abandoned, grace_s=30)
    assert check.verdict == "ok", check.said
    assert swept("gcp", limit_s=30).verdict == "ok"
    assert compute.alive() == []


@pytest.mark.slow
def test_a_machine_that_outlives_its_time_is_told_and_ended(
    aws: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEATRIAL_INGRESS_CIDR", "203.0.113.7/32")
    aws.refuse("RunInstances", "InsufficientInstanceCapacity")
    abandoned = kill_switch.abandon("aws", minutes=0.1)
    assert isinstance(abandoned, kill_switch.Abandoned)
    assert kill_switch.outlived(abandoned, grace_s=5).verdict == "FAILED"
    assert any(machine.kind == "machine" for machine in left("aws", KILL_PROJECT))
    check = swept("aws", limit_s=60)
    assert check.verdict == "FAILED"
    assert "the smoke had to end" in check.said
    assert abandoned.machine.id in check.said
    assert aws.alive() == []


def test_no_machine_to_be_had_is_not_a_failed_switch(compute: ComputeCloud) -> None:
    compute.faults.always("instances.insert", gce_fault("quotaExceeded"))
    check = kill_switch.abandon("gcp", minutes=1)
    assert isinstance(check, kill_switch.Check)
    assert check.verdict == "not shown"
    assert "quotaExceeded" in check.said
