"""The provider ``gcp``: the real client library against an emulated Compute Engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    CredentialsError,
    Extent,
    MachineState,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
    SshAddress,
)
from runners.gcp import GcpProvider
from tests.integration.gcp_lab import (
    INSERT,
    LOGIN,
    PLATFORM,
    RULE,
    ZONE,
    Clock,
    ask,
    called,
    provider_of,
    settled,
    swept,
)
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.faults import Fault
from tests.lab.machines import NO_MACHINE_HOST_KEY, NoMachines


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def machines() -> NoMachines:
    return NoMachines()


@pytest.fixture
def cloud(clock: Clock, machines: NoMachines) -> Iterator[ComputeCloud]:
    with ComputeCloud(machines=machines, clock=clock) as cloud:
        yield cloud


@pytest.fixture
def make(cloud: ComputeCloud, clock: Clock) -> Iterator[Callable[..., GcpProvider]]:
    made: list[GcpProvider] = []

    def build(**changed: str) -> GcpProvider:
        made.append(provider_of(cloud, clock, **changed))
        return made[-1]

    yield build
    for provider in made:
        provider.close()


@pytest.fixture
def provider(make: Callable[..., GcpProvider]) -> GcpProvider:
    return make()


# the four verbs


def test_a_machine_from_order_to_end(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    ordered = provider.launch(ask(provider, clock))
    assert ordered.id == f"{ZONE}/instances/seatrial-t-1"
    assert (ordered.state, ordered.token, ordered.simulated) == (
        MachineState.REQUESTED,
        "t-1",
        True,
    )
    assert ordered.facts["image_name"] == "pytorch-2-9-cu129-ubuntu-2404-nvidia-580-v20260626"
    ready = settled(provider, ordered.id, MachineState.READY)
    assert isinstance(ready.endpoint, SshAddress)
    assert ready.endpoint.address.startswith("203.0.113.")
    assert ready.endpoint.user == "ubuntu"
    assert ready.endpoint.host_key == f"ssh-ed25519 {NO_MACHINE_HOST_KEY}"
    assert dict(ready.facts) == {**ordered.facts, "instance_id": ready.facts["instance_id"]}
    assert ready.facts["instance_id"].isdigit()
    assert ready.tags["seatrial-cell"] != "gcp-l4.image"  # no label may have a dot
    assert ready.tags["seatrial-run"] == "r-1"
    assert provider.console(ordered.id)
    provider.terminate(ordered.id)
    provider.terminate(ordered.id)
    gone = settled(provider, ordered.id, MachineState.TERMINATED)
    assert gone.ended == ""
    provider.terminate(ordered.id)
    swept(provider, cloud)


def test_what_is_sent_makes_the_launch_safe(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock, machines: NoMachines
) -> None:
    spot = f"{ZONE}/g2-standard-4/spot"
    request = ask(provider, clock, place=spot, minutes=59.5)
    machine = provider.launch(request)
    settled(provider, machine.id, MachineState.READY)
    order = cloud.fleet.by_id("seatrial-t-1").order
    body = order.body
    assert body["scheduling"] == {
        "automaticRestart": False,
        "instanceTerminationAction": "DELETE",
        "maxRunDuration": {"seconds": "3600"},
        "onHostMaintenance": "TERMINATE",
        "provisioningModel": "SPOT",
    }
    assert body["tags"] == {"items": ["seatrial-seatrial"]}
    assert "guestAccelerators" not in body
    (disk,) = body["disks"]
    assert (disk["autoDelete"], disk["boot"]) == (True, True)
    assert disk["initializeParams"]["diskType"].endswith("/pd-balanced")
    assert disk["initializeParams"]["diskSizeGb"] == "100"
    assert disk["initializeParams"]["labels"] == body["labels"]
    assert body["labels"]["seatrial-token"] == "t-1"
    (spec,) = machines.booted
    said = spec.attributes
    assert said["ssh-keys"].startswith("ubuntu:ssh-ed25519 AAAA")
    assert said["ssh-keys"].endswith(" ubuntu")
    assert (said["block-project-ssh-keys"], said["enable-oslogin"]) == ("TRUE", "FALSE")
    assert "install-nvidia-driver" not in said
    expires = int(request.expires_at.timestamp()) if request.expires_at else 0
    assert str(expires + 600) in said["startup-script"], "Google's own end, which deletes, is first"
    assert spec.user_data.startswith("#cloud-config")
    assert LOGIN.private_key not in str(sorted(said.values())).replace("ed25519_private", "")
    (insert,) = [call for call in cloud.calls if call.name == INSERT]
    assert insert.details["requestId"]


def test_the_same_token_never_makes_a_second_machine(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    request = ask(provider, clock)
    first = provider.launch(request)
    clock.ahead += timedelta(minutes=7)  # less time is left: still the same request
    assert provider.launch(request).id == first.id
    settled(provider, first.id, MachineState.READY)
    clock.ahead += timedelta(hours=2)  # the request id is forgotten; the name is not
    later = replace(request, expires_at=clock() + timedelta(hours=1))
    assert provider.launch(later).id == first.id
    assert [m.id for m in provider.inventory() if m.kind == "machine"] in ([first.id], [])
    assert called(cloud, INSERT) == 3


def test_an_image_renewed_between_two_tries_finds_the_machine(
    make: Callable[..., GcpProvider], cloud: ComputeCloud, clock: Clock
) -> None:
    """The same request id with another body is refused; the machine of the first try is there."""
    cloud.refuse(INSERT, "backendError", after=True)
    first = make()
    request = ask(first, clock)
    with pytest.raises(ProviderUnavailableError):
        first.launch(request)
    newest = cloud.images.known[0]
    cloud.images.add(replace(newest, name=f"{newest.family}-v20270101"))
    machine = make().launch(request)
    assert machine.token == request.token
    answers = [call.answer for call in cloud.calls if call.name == INSERT]
    assert answers == ["backendError", "invalid"]


def test_a_lost_answer_is_asked_again_and_makes_one_machine(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.refuse(INSERT, "backendError", after=True)
    request = ask(provider, clock)
    with pytest.raises(ProviderUnavailableError) as caught:
        provider.launch(request)
    assert caught.value.code == "backendError"
    assert called(cloud, INSERT) == 1  # the client repeats nothing by itself
    assert [m.token for m in provider.inventory() if m.kind == "machine"] == ["t-1"]
    machine = provider.launch(request)
    settled(provider, machine.id, MachineState.READY)
    assert len([m for m in provider.inventory() if m.kind == "machine"]) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault(drop=True),
        Fault(drop=True, after=True),
        Fault(body="<html>Bad Gateway</html>", status=502),
        Fault(body="<html>fine</html>", status=200),
        Fault("backendError", "Backend Error", 503),
    ],
)
def test_an_unclear_answer_leaves_the_outcome_open(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock, fault: Fault
) -> None:
    cloud.faults.script(INSERT, [fault])
    with pytest.raises(ProviderUnavailableError, match=f"launching {ZONE}"):
        provider.launch(ask(provider, clock))
    assert called(cloud, INSERT) == 1


def test_a_name_that_is_taken_is_adopted_only_if_it_is_ours(
    provider: GcpProvider, make: Callable[..., GcpProvider], cloud: ComputeCloud, clock: Clock
) -> None:
    request = ask(provider, clock)
    machine = provider.launch(request)
    settled(provider, machine.id, MachineState.READY)
    clock.ahead += timedelta(minutes=1)
    cloud.refuse(INSERT, "alreadyExists")
    adopted = provider.launch(request)
    assert (adopted.id, adopted.token) == (machine.id, "t-1")
    assert adopted.facts["image_id"] == machine.facts["image_id"]
    cloud.refuse(INSERT, "alreadyExists")
    cloud.fleet.by_id("seatrial-t-1").order.body["labels"]["seatrial-token"] = "t-9"
    with pytest.raises(ConfigError, match="is not of lease t-1"):
        provider.launch(request)


def test_a_name_that_is_taken_and_not_shown_yet_is_asked_for_again(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.refuse(INSERT, "alreadyExists")
    with pytest.raises(ProviderUnavailableError, match="not shown yet"):
        provider.launch(ask(provider, clock))


def test_a_machine_that_is_not_shown_yet_is_not_gone(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.invisible_for_looks = 3
    machine = provider.launch(ask(provider, clock))
    looks = [provider.inspect(machine.id).state for _ in range(3)]
    assert MachineState.TERMINATED not in looks
    settled(provider, machine.id, MachineState.READY)


def test_ready_only_once_the_host_key_is_known(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    machine = provider.launch(ask(provider, clock))
    settled(provider, machine.id, MachineState.READY)
    cloud.faults.script(
        "instances.getGuestAttributes", [Fault("notFound", "nothing published", 404)]
    )
    booting = provider.inspect(machine.id)
    assert (booting.state, booting.endpoint) == (MachineState.BOOTING, None)
    assert "host key" in booting.detail
    assert provider.inspect(machine.id).state is MachineState.READY


def test_a_private_machine_has_no_outer_address_and_needs_no_rule(
    make: Callable[..., GcpProvider], cloud: ComputeCloud, clock: Clock
) -> None:
    provider = make(ingress_cidr="")
    machine = provider.launch(ask(provider, clock, platform={**PLATFORM, "connect": "private"}))
    ready = settled(provider, machine.id, MachineState.READY)
    assert isinstance(ready.endpoint, SshAddress)
    assert ready.endpoint.address.startswith("10.")
    assert called(cloud, RULE) == 0
    with pytest.raises(ConfigError, match="SEATRIAL_INGRESS_CIDR"):
        provider.launch(ask(provider, clock, token="t-2"))


def test_an_unknown_machine_is_gone_and_ending_it_is_no_error(provider: GcpProvider) -> None:
    strangers = (
        "nobody-knows-it",
        f"{ZONE}/instances/nobody",
        f"{ZONE}/disks/nobody",
        "global/firewalls/nobody",
        "us-central1/addresses/nobody",
        "nowhere-a/instances/x",
        "a/b/c/d",
    )
    for stranger in strangers:
        assert provider.inspect(stranger).state is MachineState.TERMINATED
        provider.terminate(stranger)
        assert provider.console(stranger) == ""


@pytest.mark.parametrize("missing", ["login", "expires_at"])
def test_never_without_keys_or_a_time_to_end(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock, missing: str
) -> None:
    with pytest.raises(ConfigError, match="never launched without"):
        provider.launch(replace(ask(provider, clock), **{missing: None}))
    assert called(cloud, INSERT) == 0


# refusals, at the call and in the operation


@pytest.mark.parametrize(
    ("code", "kind", "extent"),
    [
        ("quotaExceeded", QuotaError, Extent.MARKET),
        ("rateLimitExceeded", ProviderUnavailableError, Extent.PROJECT),
        ("userRateLimitExceeded", ProviderUnavailableError, Extent.PROJECT),
        ("tooManyRequests", ProviderUnavailableError, Extent.PROJECT),
        ("forbidden", CredentialsError, Extent.PROJECT),
        ("accessNotConfigured", ConfigError, Extent.PROJECT),
        ("invalid", ConfigError, Extent.PLACE),
        ("backendError", ProviderUnavailableError, Extent.PLACE),
        ("internalError", ProviderUnavailableError, Extent.PLACE),
        ("badGateway", ProviderUnavailableError, Extent.PLACE),
        ("resourceNotReady", ProviderUnavailableError, Extent.PLACE),
    ],
)
def test_a_refused_call_is_typed(
    provider: GcpProvider,
    cloud: ComputeCloud,
    clock: Clock,
    code: str,
    kind: type[ProviderError],
    extent: Extent,
) -> None:
    cloud.refuse(INSERT, code, where=ZONE)
    with pytest.raises(ProviderError) as caught:
        provider.launch(ask(provider, clock))
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.extent) == (code, extent)
    assert f"launching {ZONE}/g2-standard-4/on-demand" in str(caught.value)
    assert called(cloud, INSERT) == 1


def test_credentials_that_are_refused_name_what_to_set(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    request = ask(provider, clock)
    cloud.refuse(INSERT, "authError")
    # The library tries to renew what it has, and anonymous credentials cannot be renewed.
    with pytest.raises(CredentialsError, match="GOOGLE_APPLICATION_CREDENTIALS") as caught:
        provider.launch(request)
    assert caught.value.extent is Extent.PROJECT


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "capacity"),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "capacity"),
        ("UNSUPPORTED_OPERATION", "capacity"),
        ("RESOURCE_NOT_FOUND", "capacity"),
        ("QUOTA_EXCEEDED", "quota"),
        ("GPUS_ALL_REGIONS", "quota"),
        ("RESOURCE_NOT_READY", "failed"),
        ("RESOURCE_OPERATION_RATE_EXCEEDED", "failed"),
        ("IAM_PERMISSION_DENIED", "failed"),
        ("VPC_NOT_FOUND", "failed"),
        ("SUBNET_NOT_FOUND_FOR_VPC", "failed"),
        ("INTERNAL_ERROR", "failed"),
        ("CONDITION_NOT_MET", "failed"),
    ],
)
def test_a_refusal_in_the_operation_is_found_by_looking(
    provider: GcpProvider,
    make: Callable[..., GcpProvider],
    cloud: ComputeCloud,
    clock: Clock,
    code: str,
    ended: str,
) -> None:
    cloud.refuse(INSERT, code, where=ZONE)
    machine = provider.launch(ask(provider, clock))
    assert machine.state is MachineState.REQUESTED
    # Another process, that never saw the answer to the call, sees the same.
    gone = settled(make(), machine.id, MachineState.TERMINATED)
    assert gone.ended == ended
    assert ("QUOTA_EXCEEDED" if code == "GPUS_ALL_REGIONS" else code) in gone.detail
    assert not [m for m in provider.inventory() if m.kind == "machine"]


def test_a_refusal_that_is_known_at_the_repeated_call_is_raised(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.dry.add(ZONE)
    request = ask(provider, clock)
    assert provider.launch(request).state is MachineState.REQUESTED
    with pytest.raises(CapacityError, match="not have enough resources") as caught:
        provider.launch(request)  # the same request id: the same operation, which is over
    assert caught.value.code == "ZONE_RESOURCE_POOL_EXHAUSTED"


def test_asking_again_cannot_mend_an_operation_that_failed(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.refuse(INSERT, "INTERNAL_ERROR")
    request = ask(provider, clock)
    provider.launch(request)
    again = provider.launch(request)
    assert again.state is MachineState.REQUESTED
    gone = provider.inspect(again.id)
    assert (gone.state, gone.ended) == (MachineState.TERMINATED, "failed")


def test_what_cannot_be_deleted_yet_is_not_taken_for_gone(
    provider: GcpProvider, cloud: ComputeCloud, clock: Clock
) -> None:
    cloud.lag_s, cloud.hides_from_changes = 20, True
    machine = provider.launch(ask(provider, clock))
    provider.terminate(machine.id)  # 404, and it lives on
    assert provider.inspect(machine.id).state is MachineState.REQUESTED
    clock.ahead += timedelta(seconds=21)
    provider.terminate(machine.id)
    assert settled(provider, machine.id, MachineState.TERMINATED).ended == ""
    swept(provider, cloud)
