"""Which image a provider would boot: what it says before is what its machine has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.domain.machine import ConfigError, MachineState
from orchestrator.domain.quota import Images
from runners.aws import AwsProvider
from tests.contract import provider_cases
from tests.contract.provider_cases import PLATFORMS, Case, ask, until
from tests.integration.aws_world import PLATFORM, account, context
from tests.integration.gcp_lab import Clock, provider_of
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.google.images import Image
from tests.platforms import as_platform

KNOWING = ("aws", "fake", "gcp")


@pytest.fixture(params=sorted(PLATFORMS))
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    with provider_cases.case(request.param, monkeypatch) as case:
        yield case


def test_what_is_said_is_what_is_booted(case: Case) -> None:
    """A TPU's runtime version is a name: what stands behind it changes, so nothing is said."""
    provider = case.provider
    assert isinstance(provider, Images) == (case.name in KNOWING)
    if not isinstance(provider, Images):
        return
    request = ask(case.provider, case.name)
    said = provider.image(request.platform, request.place)
    assert list(case.provider.inventory()) == []
    machine = until(case.provider, case.provider.launch(request), MachineState.READY)
    assert said.id == machine.facts["image_id"] != ""
    assert said.simulated == machine.simulated == (case.name != "fake")


def test_a_renewed_image_of_ec2_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with account(monkeypatch) as cloud:
        first = AwsProvider(context())
        place = first.places(as_platform(PLATFORM))[0]
        before = first.image(as_platform(PLATFORM), place)
        cloud.images.deregister("oss-nvidia-driver-gpu-pytorch-2.12-ubuntu-24.04")
        after = AwsProvider(context()).image(as_platform(PLATFORM), place)
        assert before.id != after.id
        assert [call.name for call in cloud.calls if call.name == "RunInstances"] == []


def test_an_image_that_installs_its_driver_fixes_nothing() -> None:
    clock = Clock()
    with ComputeCloud(clock=clock) as cloud:
        provider = provider_of(cloud, clock)
        family = "common-cu121"
        old = Image("deeplearning-platform-release", f"{family}-v20231105-debian-11", family)
        cloud.images.add(old)
        platform = {**PLATFORMS["gcp"], "image": {"family": family}}
        place = provider.places(as_platform(platform))[0]
        assert provider.image(as_platform(platform), place).id == ""
        with pytest.raises(ConfigError, match="not found"):
            provider.image(as_platform({**platform, "image": {"family": "no-such"}}), place)
        provider.close()
