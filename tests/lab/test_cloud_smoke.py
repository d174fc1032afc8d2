"""`make cloud-smoke` as far as it goes without an account: emulated clouds, and no machines.

Nobody answers behind the addresses, so the cells fail; what must hold nevertheless is that prices
are told first, that nothing is rented unasked, that failures are told as such, and that nothing is
left.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.aws_cloud import AwsCloud
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.machines import NO_MACHINE_HOST_KEY, NoMachines
from tests.lab.tpu_cloud import TpuCloud

ROOT = Path(__file__).parents[2]
PROJECT = "lab-project-4711"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Clouds:
    aws: AwsCloud
    compute: ComputeCloud
    tpu: TpuCloud

    def environment(self, folder: Path) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(folder),
            "AWS_ENDPOINT_URL": self.aws.endpoint_url,
            "AWS_ACCESS_KEY_ID": "lab",
            "AWS_SECRET_ACCESS_KEY": "lab",
            "AWS_EC2_METADATA_DISABLED": "true",
            "SEATRIAL_GCP_PROJECT": PROJECT,
            "SEATRIAL_GCP_COMPUTE_ENDPOINT": self.compute.endpoint_url,
            "SEATRIAL_GCP_TPU_ENDPOINT": self.tpu.endpoint,
            "SEATRIAL_INGRESS_CIDR": "203.0.113.7/32",
        }

    def alive(self) -> list[tuple[str, str]]:
        return [*self.aws.alive(), *self.compute.alive(), *self.tpu.alive()]


@pytest.fixture
def clouds() -> Iterator[Clouds]:
    with ExitStack() as stack:
        clouds = Clouds(
            stack.enter_context(AwsCloud(machines=NoMachines())),
            stack.enter_context(ComputeCloud(machines=NoMachines())),
            stack.enter_context(TpuCloud(machines=NoMachines())),
        )
        for cloud in (clouds.aws, clouds.compute, clouds.tpu):
            cloud.follow_facts()
        yield clouds


def smoke(clouds: Clouds, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.cloud_smoke", *words, "--transcript", str(folder / "told")],
        env=clouds.environment(folder),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        stdin=subprocess.DEVNULL,
    )


def lines_of(folder: Path) -> Sequence[str]:
    (path,) = (folder / "told").glob("*.jsonl")
    return path.read_text().splitlines()


def test_it_tells_the_price_and_rents_nothing_unasked(clouds: Clouds, tmp_path: Path) -> None:
    done = smoke(clouds, tmp_path)
    assert done.returncode == 2, done.stderr
    assert "--yes rents without asking" in done.stderr
    prices = [line for line in done.stdout.splitlines() if "at most" in line]
    assert [line.split()[0] for line in prices] == ["aws", "gcp", "tpu", "all"]
    assert clouds.alive() == []
    assert not clouds.aws.billing()


@pytest.mark.usefixtures("sealed")
@pytest.mark.slow
@pytest.mark.timeout(450)
def test_a_smoke_without_machines_fails_truly_and_leaves_nothing(
    clouds: Clouds, tmp_path: Path
) -> None:
    clouds.aws.give_next_public_address(LOOPBACK)
    clouds.compute.give_next_external_address(LOOPBACK)
    clouds.tpu.give_next_external_address(LOOPBACK)
    done = smoke(clouds, tmp_path, "--yes", "--minutes", "0.2", "--kill-minutes", "0")
    assert done.returncode == 1, done.stdout + done.stderr
    told = {tuple(line.split()[:2]): line for line in done.stdout.splitlines()}
    for cloud in ("aws", "gcp", "tpu"):
        assert "FAILED" in told[cloud, "cell"]
        assert " ok " in told[cloud, "granted"]
        assert "never preparing" in told[cloud, "boot"]
        assert " ok " in told[cloud, "image"]
        assert "not shown" in told[cloud, "host-key"]
        assert " ok " in told[cloud, "nothing-left"]
    assert " ok " in told["aws", "bill"]
    assert clouds.alive() == []
    check_transcript(lines_of(tmp_path))


def check_transcript(lines: Sequence[str]) -> None:
    calls = [json.loads(line) for line in lines]
    names = {(call["cloud"], call["call"]) for call in calls}
    assert {
        ("aws", "RunInstances"),
        ("aws", "TerminateInstances"),
        ("gcp", "instances.insert"),
        ("gcp", "instances.delete"),
        ("tpu", "CreateQueuedResource"),
        ("tpu", "DeleteQueuedResource"),
    } <= names
    assert all(call["duration_s"] >= 0 for call in calls)
    text = "\n".join(lines)
    for secret in (PROJECT, NO_MACHINE_HOST_KEY, LOOPBACK, "203.0.113", "PRIVATE KEY", "i-0"):
        assert secret not in text, secret
