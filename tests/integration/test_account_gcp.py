"""`seatrial bootstrap gcp` and `doctor gcp` against an emulated project.

What ends the machines is what Cloud Run was told to start, in a process of its own: a server whose
command is the kill switch's file, called as its timer calls it, with no controller and no provider.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.domain.cloud_account import CheckLevel
from orchestrator.domain.machine import ConfigError
from runners.google.setup.project import ACT_AS, CODE, TPU, GoogleAccountSetup
from runners.tpu import TpuProvider
from tests.e2e.home import eventually
from tests.integration import tpu_world
from tests.integration.gcp_lab import Clock, provider_of
from tests.integration.gcp_lab import ask as ask_gcp
from tests.integration.tpu_world import Skewed
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.google.account_cloud import AccountCloud
from tests.lab.google.kill_switch import KillSwitch, deployed
from tests.lab.tpu_cloud import TpuCloud
from tests.unit.cli import in_process
from tests.unit.cli.in_process import Cli

cli = in_process.cli  # the fixture
cloud, clock, machines = tpu_world.cloud, tpu_world.clock, tpu_world.machines
open_provider = tpu_world.open_provider


@pytest.fixture
def project() -> Iterator[AccountCloud]:
    with AccountCloud() as project:
        yield project


@pytest.fixture
def setup(project: AccountCloud, tmp_path: Path) -> GoogleAccountSetup:
    settings = {"gcp_project": "lab", "gcp_account_endpoint": project.endpoint_url}
    return GoogleAccountSetup(settings, tmp_path)


@pytest.fixture
def compute() -> Iterator[ComputeCloud]:
    with ComputeCloud() as compute:
        for quota in ("NVIDIA_L4_GPUS", "GPUS_ALL_REGIONS"):
            compute.quotas.set(quota, 9)
        yield compute


@pytest.fixture
def switch(
    project: AccountCloud,
    setup: GoogleAccountSetup,
    compute: ComputeCloud,
    cloud: TpuCloud,
    tmp_path: Path,
) -> Iterator[KillSwitch]:
    """As it was deployed in the project; its first call is made by the bootstrap."""
    with ExitStack() as stack:
        started: list[KillSwitch] = []

        def call(container: dict[str, object]) -> int:
            opened = deployed(
                container, compute=compute.endpoint_url, tpu=cloud.target, folder=tmp_path
            )
            started.append(stack.enter_context(opened))
            return started[-1].fire()[0]

        project.call = call
        assert "called the kill switch once: it works" in list(setup.apply())
        yield started[0]


def an_instance(
    compute: ComputeCloud, token: str, *, minutes: float, project: str = "seatrial"
) -> None:
    """An instance whose controller is not there any more; asked for when it had not expired."""
    now = Clock()
    provider = provider_of(compute, now, project=project)
    request = ask_gcp(provider, now, token=token)
    ends = now() + timedelta(minutes=minutes)
    provider.launch(_ending(request, ends, project))


def _ending(request, ends: datetime, project: str = "seatrial"):
    tags = {
        **request.tags,
        "seatrial-project": project,
        "seatrial-expires-at": str(int(ends.timestamp())),
    }
    fields = {name: getattr(request, name) for name in ("token", "place", "platform", "login")}
    return type(request)(**fields, tags=tags, expires_at=request.expires_at)


def test_what_no_controller_ends_is_ended_by_the_project_itself(
    switch: KillSwitch, compute: ComputeCloud
) -> None:
    an_instance(compute, "old", minutes=-1)
    an_instance(compute, "young", minutes=60)
    an_instance(compute, "strange", minutes=-1, project="other")
    status, done = switch.fire()
    assert (status, done["failed"], done["unread"]) == (200, {}, [])
    assert [name.rpartition("/")[2] for name in done["ended"]] == ["seatrial-old"]
    assert done["running"] >= 1
    eventually(lambda: [kind for kind, _ in compute.alive()].count("instance") == 2)


@pytest.mark.parametrize("api", [tpu_world.QUEUE, tpu_world.NODE], ids=["queued", "node"])
def test_tpus_end_with_their_queued_resource(
    switch: KillSwitch,
    cloud: TpuCloud,
    clock: Skewed,
    open_provider: Callable[..., TpuProvider],
    api: dict[str, str],
) -> None:
    request = tpu_world.ask("old", options=api)
    open_provider().launch(_ending(request, clock() - timedelta(minutes=1)))
    assert cloud.alive()
    status, done = switch.fire()
    assert (status, done["failed"], done["unread"]) == (200, {}, [])
    assert done["ended"]
    # the queue entry went with its node, at the latest by a second call
    tpu_world_is_empty(switch, cloud, clock)


def tpu_world_is_empty(switch: KillSwitch, cloud: TpuCloud, clock: Skewed) -> None:
    for _ in range(5):
        if not cloud.alive():
            return
        clock.move(600)
        assert switch.fire()[0] == 200
    raise AssertionError(f"left: {cloud.alive()}")


def test_a_refusal_is_named_and_keeps_nothing_else(
    switch: KillSwitch, compute: ComputeCloud, cloud: TpuCloud
) -> None:
    an_instance(compute, "old", minutes=-1)
    cloud.refuse("ListNodes", "PERMISSION_DENIED")
    compute.refuse("instances.delete", "forbidden")
    status, done = switch.fire()
    assert status == 500
    assert {name.rpartition("/")[2] for name in done["failed"]} == {"nodes", "seatrial-old"}
    assert switch.fire()[0] == 200


def test_it_is_made_once_updated_and_removed_by_one_command(
    project: AccountCloud, setup: GoogleAccountSetup
) -> None:
    project.unknown_looks = 2  # IAM knows a new service account a little later
    before = json.dumps(project.bindings)
    list(setup.apply())
    (service,) = project.services.values()
    assert service["ingress"] == "INGRESS_TRAFFIC_INTERNAL_ONLY"
    assert service["template"]["containers"][0]["args"] == [CODE.read_text(encoding="utf-8")]
    (account,) = project.accounts
    assert [
        one["role"] for one in project.bindings if f"serviceAccount:{account}" in one["members"]
    ]
    assert f"updated the Cloud Run service {account.partition('@')[0]}" in list(setup.apply())
    assert f"deleted {account}" in list(setup.remove())
    assert (project.services, project.jobs, project.accounts) == ({}, {}, {})
    assert all(role["deleted"] for role in project.roles.values())
    assert json.dumps(project.bindings) == before
    list(setup.remove())  # again: nothing is there, and nothing is wrong
    list(setup.apply())  # and again from nothing, where deleted roles keep their ids
    assert not any(role.get("deleted") for role in project.roles.values())


def test_a_kill_switch_that_does_not_work_is_told_at_once(
    project: AccountCloud, setup: GoogleAccountSetup
) -> None:
    project.call = lambda _: 500
    with pytest.raises(ConfigError, match="failed at its first call"):
        list(setup.apply())


def test_doctor_names_each_missing_permission_and_the_command_that_grants_it(
    project: AccountCloud, setup: GoogleAccountSetup
) -> None:
    found = {check.name: check for check in setup.check()}
    assert found["compute.instances.create"].level is CheckLevel.FAIL
    assert "add-iam-policy-binding lab" in found["compute.instances.create"].command
    assert found["compute.googleapis.com"].command == (
        "gcloud services enable compute.googleapis.com --project lab"
    )
    assert found["kill switch"].level is CheckLevel.WARN
    list(setup.apply())
    role = next(each for name, each in project.roles.items() if name.endswith("_controller"))
    project.granted = {*role["includedPermissions"], *TPU, ACT_AS}
    assert {check.name for check in setup.check() if check.level is not CheckLevel.OK} == set()


def test_the_commands_of_a_person(
    project: AccountCloud, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEATRIAL_GCP_PROJECT", "lab")
    monkeypatch.setenv("SEATRIAL_GCP_ACCOUNT_ENDPOINT", project.endpoint_url)
    path = tmp_path / "gcp.json"
    assert cli("bootstrap", "gcp", "-o", str(path)) == 0
    assert json.loads(path.read_text())["service"]["template"]["containers"]
    assert "Google Cloud project lab" in cli.err
    assert project.services == {}
    assert cli("bootstrap", "gcp", "-o", str(path), "--yes") == 0
    assert len(project.services) == 1
    assert cli("doctor", "gcp") == 1
    assert "compute.instances.create: not granted" in cli.out
    assert cli("bootstrap", "gcp", "--remove", "-y") == 0
    assert project.services == {}
