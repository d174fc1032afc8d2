"""The lab as a whole: three emulated clouds, real machines behind their addresses, a controller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from ruamel.yaml import YAML

from orchestrator.domain.prices import Prices
from orchestrator.store.database import migrate, open_database
from runners import registry
from runners.provider_context import ProviderContext
from tests.e2e.home import ROOT, Home, a_home
from tests.lab.aws_cloud import AwsCloud
from tests.lab.cloud_facts import durations
from tests.lab.compute_cloud import ComputeCloud
from tests.lab.machines import Machines
from tests.lab.seal import ADDRESS
from tests.lab.tpu_cloud import TpuCloud
from tests.lab.wheels import WHEELS

PROJECT = "lab-project"


@dataclass(frozen=True)
class Site:
    """The clouds of one test; the product reaches them by settings alone."""

    aws: AwsCloud
    compute: ComputeCloud
    tpu: TpuCloud
    machines: Machines

    @property
    def environment(self) -> dict[str, str]:
        """What whoever starts a controller here sets."""
        return {
            "AWS_ENDPOINT_URL": self.aws.endpoint_url,
            "AWS_ACCESS_KEY_ID": "lab",
            "AWS_SECRET_ACCESS_KEY": "lab",
            "AWS_EC2_METADATA_DISABLED": "true",
            "SEATRIAL_GCP_PROJECT": PROJECT,
            "SEATRIAL_GCP_COMPUTE_ENDPOINT": self.compute.endpoint_url,
            "SEATRIAL_GCP_TPU_ENDPOINT": self.tpu.endpoint,
            "SEATRIAL_INGRESS_CIDR": f"{ADDRESS}/32",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(WHEELS),
        }

    def left(self) -> list[tuple[str, str]]:
        """Everything of any cloud that costs or lingers, and every machine that runs."""
        clouds = [*self.aws.alive(), *self.compute.alive(), *self.tpu.alive()]
        return [*clouds, *(("process tree", one) for one in self.machines.live())]


@contextmanager
def a_site(machines: Machines) -> Iterator[Site]:
    """Open the clouds; the machines are the caller's."""
    with ExitStack() as stack:
        site = Site(
            stack.enter_context(AwsCloud(machines=machines)),
            stack.enter_context(ComputeCloud(machines=machines)),
            stack.enter_context(TpuCloud(machines=machines)),
            machines,
        )
        for cloud in (site.aws, site.compute, site.tpu):
            cloud.follow_facts()
        site.compute.operations.change_s = durations("gcp")["firewall"]  # a clock must go on for it
        yield site


@contextmanager
def served(site: Site, folder: Path, **environment: str) -> Iterator[Home]:
    """A home at the site, whose commands find the clouds."""
    put_prices_of_today(folder)
    with a_home(folder, **(site.environment | environment)) as home:
        yield home


def put_prices_of_today(home: Path) -> None:
    """Write the shipped prices, dated today, into the database of a home that is to be.

    A plan refuses prices of more than 90 days, which the shipped tables will have.
    """
    home.mkdir(parents=True, mode=0o700)
    url, today = f"sqlite:///{home / 'app.db'}", datetime.now(UTC)
    migrate(url)
    with closing(open_database(url)) as database:
        for name in ("aws", "gcp", "tpu"):
            shipped = registry.load(name, ProviderContext(book=database.stores.static_hosts))
            prices = cast("Prices", shipped).known_prices()
            database.stores.prices.write(replace(price, as_of=today) for price in prices)


def release_matrix(
    path: Path, *, jobs: tuple[str, ...], platforms: tuple[str, ...] = (), **limits: object
) -> Path:
    """The release matrix for the lab: fewer jobs, and the TPU's image has its environment."""
    yaml = YAML()
    document: dict[str, Any] = yaml.load(ROOT / "matrices/release.yaml")
    document["jobs"] = [{"id": job} for job in jobs]
    if platforms:
        document["platforms"] = [p for p in document["platforms"] if p["id"] in platforms]
    for platform in document["platforms"]:
        if platform["provider"] == "tpu":
            platform["environments"] = ["image"]
    document["limits"].update(limits)
    yaml.dump(document, path)
    return path
