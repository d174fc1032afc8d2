"""The worked example of `docs/extending/provider.md`, as another distribution brings it.

The questions of every provider are asked of it in `test_providers.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    CredentialsError,
    Extent,
    MachineState,
    NotOfferedError,
    Offers,
    Provider,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
)
from tests.contract.acme_cloud import TOKEN, AcmeCloud
from tests.contract.provider_cases import EXAMPLE, PLATFORMS, ask, load, until
from tests.platforms import as_platform

ROOT = Path(__file__).parents[2]
LINES = 200
MATRIX = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {name: acme}
subject: {name: torchbridge, version: "0.4.40"}
payload: builtin
limits: {max_usd: "2.00", max_minutes: 30}
platforms:
  - {id: acme-gpu, provider: acme, instance_type: gpu-1, locations: [west-2, west]}
jobs:
  - {id: moe-demo}
"""


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[AcmeCloud]:
    with AcmeCloud() as cloud:
        monkeypatch.setenv("ACME_URL", cloud.url)
        monkeypatch.setenv("ACME_TOKEN", TOKEN)
        yield cloud


@pytest.fixture
def provider(cloud: AcmeCloud) -> Provider:
    assert not cloud.servers
    return load("acme")


@pytest.mark.parametrize(
    ("code", "kind", "extent"),
    [
        ("no_capacity", CapacityError, Extent.PLACE),
        ("zone_drained", CapacityError, Extent.ZONE),
        ("region_limit", QuotaError, Extent.REGION),
        ("account_limit", QuotaError, Extent.PROJECT),
        ("slow_down", ProviderUnavailableError, Extent.PROJECT),
        ("broken", ProviderUnavailableError, Extent.PLACE),
        ("bad_request", ConfigError, Extent.PLACE),
    ],
)
def test_refusals_say_what_to_do_and_how_far_they_reach(
    provider: Provider, cloud: AcmeCloud, code: str, kind: type[ProviderError], extent: Extent
) -> None:
    cloud.faults.append(code)
    with pytest.raises(kind, match=f"POST .*servers was refused: {code}") as refused:
        provider.launch(ask(provider, "acme"))
    assert (refused.value.code, refused.value.extent) == (code, extent)
    assert not cloud.servers


@pytest.mark.parametrize(("code", "ended"), [("no_capacity", "capacity"), ("fire", "failed")])
def test_an_order_may_be_refused_late(
    provider: Provider, cloud: AcmeCloud, code: str, ended: str
) -> None:
    cloud.faults.append(f"late:{code}")
    ordered = provider.launch(ask(provider, "acme"))
    assert ordered.state is MachineState.REQUESTED
    assert until(provider, ordered, MachineState.TERMINATED).ended == ended
    assert list(provider.inventory()) == []


def test_strangers_and_unknown_types_are_told_apart(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(provider, Offers)
    with pytest.raises(NotOfferedError, match="no_such_type"):
        provider.places(as_platform({**PLATFORMS["acme"], "instance_type": "gpu-9"}))
    monkeypatch.setenv("ACME_TOKEN", "stranger")
    with pytest.raises(CredentialsError):
        list(load("acme").inventory())


def test_places_follow_the_matrix_and_are_asked_for_once(
    provider: Provider, cloud: AcmeCloud
) -> None:
    assert isinstance(provider, Offers)
    platform = {**PLATFORMS["acme"], "locations": ("west-2", "west-1")}
    for _ in range(3):
        places = provider.places(as_platform(platform))
    assert [place.zone for place in places] == ["west-2", "west-1"]
    assert places[0].usd_per_hour == Decimal("0.76")
    assert cloud.type_looks == 1


def test_the_machine_is_told_who_may_enter_and_when_to_end(
    provider: Provider, cloud: AcmeCloud
) -> None:
    request = ask(provider, "acme")
    provider.launch(request)
    (told,) = cloud.launches
    assert request.login is not None
    assert request.login.public_key in told["user_data"]
    assert "ssh_keys:" in told["user_data"]
    assert told["delete_at"] == request.expires_at.isoformat()
    with pytest.raises(ConfigError, match="keys and an end"):
        provider.launch(replace(request, login=None))


def test_an_inventory_has_every_page(provider: Provider) -> None:
    made = {provider.launch(ask(provider, "acme", token=f"t-{n}")).id for n in range(5)}
    assert {machine.id for machine in provider.inventory()} == made


def test_it_is_as_short_as_the_page_says() -> None:
    (source,) = (EXAMPLE / "src").rglob("*.py")
    assert len(source.read_text().splitlines()) < LINES


# as a distribution


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of site-packages with the example in it, as an installer leaves it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    (tmp_path / "acme_seatrial").symlink_to(EXAMPLE / "src/acme_seatrial")
    info = tmp_path / "acme_seatrial-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("\n".join(groups))
    return tmp_path


def test_an_installed_provider_is_planned_with(
    installed: Path, cloud: AcmeCloud, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("home")
    (folder / "acme.yaml").write_text(MATRIX)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)]),
        "SEATRIAL_HOME": str(folder / "home"),
        "ACME_URL": cloud.url,
        "ACME_TOKEN": TOKEN,
    }
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "plan", str(folder / "acme.yaml"), "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    try:
        assert done.returncode == 0, done.stderr
        (cell,) = json.loads(done.stdout)["cells"]
        assert [place["name"] for place in cell["places"]] == ["west-2/gpu-1", "west-1/gpu-1"]
        assert Decimal(cell["worst_usd"]) > Decimal("0.38")
    finally:
        pid = folder / "home/controller.pid"
        if pid.exists():
            os.kill(int(pid.read_text()), 15)
    assert not cloud.servers


def test_nothing_of_the_controller_knows_it() -> None:
    for path in (*(ROOT / "orchestrator").rglob("*.py"), *(ROOT / "runners").rglob("*.py")):
        assert "acme" not in path.read_text().lower(), path
