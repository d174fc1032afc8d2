"""The whole of `make first-contact` against emulated clouds: calls, findings, the archive."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest

from tests.first_contact.__main__ import CALLS, main
from tests.first_contact.calls import Contact, Scrubber, in_order
from tests.first_contact.rented import scanned_key
from tests.integration.aws_world import account
from tests.lab.aws_cloud import AwsCloud
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.google.account_cloud import AccountCloud
from tests.lab.google.quotas_cloud import QuotasCloud
from tests.lab.tpu_cloud import TpuCloud

PROJECT = "acme-research-41"


class Clouds:
    """Four emulations whose time goes on when the script waits."""

    def __init__(self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = timedelta()
        self.aws: AwsCloud = stack.enter_context(account(monkeypatch))
        self.aws.clock = self.now
        self.compute = stack.enter_context(ComputeCloud(clock=self.now))
        self.tpu = stack.enter_context(TpuCloud(clock=self.now))
        for cloud in (self.aws, self.compute, self.tpu):
            cloud.follow_facts()
        self.project = stack.enter_context(AccountCloud())
        quotas = stack.enter_context(QuotasCloud(quotas=self.tpu.quotas))
        for name, value in {
            "SEATRIAL_GCP_PROJECT": PROJECT,
            "SEATRIAL_GCP_COMPUTE_ENDPOINT": self.compute.endpoint_url,
            "SEATRIAL_GCP_TPU_ENDPOINT": self.tpu.endpoint,
            "SEATRIAL_GCP_QUOTAS_ENDPOINT": quotas.endpoint_url,
            "SEATRIAL_GCP_ACCOUNT_ENDPOINT": self.project.endpoint_url,
            "SEATRIAL_INGRESS_CIDR": "203.0.113.7/32",
        }.items():
            monkeypatch.setenv(name, value)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def sleep(self, seconds: float) -> None:
        """Half a minute passes for each look, and guests do what they were told at their boot."""
        del seconds
        self.ahead += timedelta(seconds=30)
        ec2 = boto3.client("ec2", region_name="us-east-1")
        for reservation in ec2.describe_instances()["Reservations"]:
            for one in reservation["Instances"]:
                tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}
                if int(tags.get("seatrial-expires-at", 2**62)) <= self.now().timestamp():
                    ec2.terminate_instances(InstanceIds=[one["InstanceId"]])


@pytest.fixture
def clouds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clouds]:
    with ExitStack() as stack:
        yield Clouds(stack, monkeypatch)


def archive_of(folder: Path) -> dict[str, str]:
    (path,) = folder.glob("first-contact-*.tar.gz")
    with tarfile.open(path) as archive:
        files = {one.name: archive.extractfile(one) for one in archive.getmembers()}
        return {name: file.read().decode() for name, file in files.items() if file}


def test_all_fifteen_calls(
    clouds: Clouds,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # nobody boots behind these clouds: a scan would wait five seconds each time
    monkeypatch.setattr("tests.first_contact.aws.scanned_key", lambda host, port: "")
    contact = Contact(clouds.now, clouds.sleep)
    code = main(["--yes", "--archive", str(tmp_path)], contact=contact)
    out = capsys.readouterr().out
    files = archive_of(tmp_path)
    found = {one["number"]: one for one in json.loads(files["findings.json"])}
    assert sorted(found) == list(range(1, 16))
    assert {name for name in files if name.startswith("answers/")} == {
        f"answers/{number:02}.json" for number in range(1, 16)
    }
    verdicts = {number: (one["verdict"], one["text"]) for number, one in found.items()}
    # a fresh account: no role for spot, no API is enabled, old lines of images are gone; a zone of
    # Cloud TPU is silent, and the guest agent of the lab's Google publishes a host key of its own
    refuted = {number for number, one in verdicts.items() if one[0] == "refuted"}
    assert refuted == {3, 4, 9, 11, 14}, verdicts
    # what is not seen is not confirmed
    assert verdicts[8] == ("not shown", "ended by itself (), but SSH never answered")
    assert {number for number, one in verdicts.items() if one[0] == "not shown"} == {8}, verdicts
    assert code == 1
    text = "".join(files.values()) + out
    for secret in ("123456789012", PROJECT, "PRIVATE KEY", "203.0.113.7"):
        assert secret not in text
    assert {kind for kind, _ in clouds.aws.alive()} == set()
    assert [clouds.compute.alive(), clouds.tpu.alive()] == [[], []]


@pytest.mark.needs_ssh
def test_a_machine_that_does_not_answer_presents_no_key() -> None:
    assert scanned_key("127.0.0.1", 1) == ""


def test_nothing_is_called_where_nobody_can_agree(
    clouds: Clouds, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert main(["aws", "--archive", str(tmp_path)], contact=Contact(clouds.now, clouds.sleep)) == 0
    assert clouds.aws.calls == []
    out = capsys.readouterr().out
    assert "8 aws: one t3.micro for three minutes; at most 0.02 USD" in out
    assert "0 confirmed, 0 refuted, 8 not shown" in out


def test_reading_comes_before_renting() -> None:
    ordered = [call.number for call in in_order(CALLS)]
    assert ordered == [1, 2, 3, 4, 5, 6, 7, 9, 10, 13, 14, 8, 11, 12, 15]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("arn:aws:iam::123456789012:user/x", "arn:aws:iam::<account 1>:user/x"),
        ("a.b+c@corp.example.com", "<email 1>"),
        ("AKIAIOSFODNN7EXAMPLE", "<access key 1>"),
        ("-----BEGIN RSA PRIVATE KEY-----\\nx\\n-----END RSA PRIVATE KEY-----", "<private key 1>"),
        ("10.0.0.1 10.0.0.2 10.0.0.1", "<address 1> <address 2> <address 1>"),
        ("driver 580.126.09, 1234567890123", "driver 580.126.09, 1234567890123"),
        ("projects/acme/x", "projects/<project 1>/x"),
    ],
)
def test_what_says_whose_account_it_is_is_replaced(text: str, clean: str) -> None:
    assert Scrubber({"acme": "project"}).clean(text) == clean
