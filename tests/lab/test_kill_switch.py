"""Every controller killed with SIGKILL: the accounts end their machines themselves, TPUs included.

What ends them is what `seatrial bootstrap` deployed in the emulated accounts, run as it is. No
machine stands behind the clouds here, and no packet leaves the loopback.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from orchestrator.assets import asset_dir
from runners.aws.setup.stack import AwsAccountSetup
from runners.google.setup.project import GoogleAccountSetup
from tests.e2e.home import Home, eventually
from tests.lab.google.account_cloud import AccountCloud
from tests.lab.google.kill_switch import KillSwitch, deployed
from tests.lab.google.quotas_cloud import QuotasCloud
from tests.lab.machines import NoMachines
from tests.lab.moved_clock import MovedClock
from tests.lab.site import PROJECT, Site, a_site, release_matrix, served
from tests.lab.test_kill_controller import PLATFORMS, are_held, only_shared

PERIOD_S = 300
"""How often both accounts' timers fire."""
LIMIT_S = 600
"""How long a machine may run past its expires-at, by the lab's clock."""
MACHINES = {"instance", "node", "queued-resource"}
CLOUDS = {"aws", "gcp", "tpu"}


@pytest.fixture
def clock(tmp_path: Path) -> MovedClock:
    return MovedClock(tmp_path)


@pytest.fixture
def machines() -> NoMachines:
    return NoMachines(boot_delay_s=10**6)


@pytest.fixture
def site(machines: NoMachines) -> Iterator[Site]:
    with a_site(machines) as site:
        site.compute.fleet.staging_limit_s = site.tpu.nodes.booting_limit_s = 10**6
        yield site
        site.aws.raise_crashes()


@pytest.fixture
def home(site: Site, tmp_path: Path) -> Iterator[Home]:
    with QuotasCloud(quotas=site.tpu.quotas) as quotas:
        endpoint = quotas.endpoint_url
        with served(site, tmp_path / "home", SEATRIAL_GCP_QUOTAS_ENDPOINT=endpoint) as home:
            yield home


@pytest.fixture
def google(site: Site, clock: MovedClock, tmp_path: Path) -> Iterator[KillSwitch]:
    """Cloud Run's container, as the bootstrap asked for it."""
    with AccountCloud() as project:
        settings = {"gcp_project": PROJECT, "gcp_account_endpoint": project.endpoint_url}
        list(GoogleAccountSetup(settings, tmp_path).apply())
        (service,) = project.services.values()
        container = service["template"]["containers"][0]
        folder = tmp_path / "container"
        folder.mkdir()
        compute, tpu = site.compute.endpoint_url, site.tpu.target
        with deployed(
            container, compute=compute, tpu=tpu, folder=folder, **clock.environment
        ) as switch:
            yield switch


def running(machines: NoMachines) -> set[str]:
    """The clouds whose machine has not ended."""
    live = machines.live()
    return {spec.cloud for spec in machines.booted if spec.id in live}


def expiries(home: Home) -> dict[str, float]:
    """The `expires-at` that each cloud's machine carries."""
    listed = home.get("/machines")["items"]
    found = [one for one in listed if one["kind"] in ("machine", "queued-resource")]
    return {one["provider"]: datetime.fromisoformat(one["expires_at"]).timestamp() for one in found}


def fire(site: Site, google: KillSwitch) -> bool:
    """As if both timers' time had come; whether nothing is left that costs."""
    assert site.aws.functions.fire_timers() == 1
    assert site.aws.functions.runs[-1].returncode == 0, site.aws.functions.runs[-1].stderr
    status, done = google.fire()
    assert (status, done["failed"]) == (200, {})
    return only_shared(site)


def lateness(
    due: dict[str, float], fires_at: float, timers: Callable[[], object], machines: NoMachines
) -> dict[str, float]:
    """Fire the timers; the seconds from each due machine's expiry to its end."""
    began = time.monotonic()
    timers()
    eventually(lambda: not due.keys() & running(machines))
    at = fires_at + time.monotonic() - began
    return {name: at - expiry for name, expiry in due.items()}


def deploy(site: Site, clock: MovedClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bootstrap of the AWS account; `google` is that of the project."""
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)
    list(AwsAccountSetup({"project": "seatrial"}, asset_dir("templates")).apply())
    site.aws.functions.environment = clock.environment


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_clouds_end_what_dead_controllers_left(
    home: Home,
    site: Site,
    machines: NoMachines,
    google: KillSwitch,
    clock: MovedClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deploy(site, clock, monkeypatch)
    all_timers_fire = partial(fire, site, google)
    matrix = release_matrix(tmp_path / "matrix.yaml", jobs=("moe",), platforms=PLATFORMS)
    run = home.launch(matrix)
    eventually(lambda: are_held(home, run))
    eventually(lambda: running(machines) == CLOUDS == expiries(home).keys())
    expires = expiries(home)
    home.kill_controller()
    before = set(site.left())
    kinds = [kind for kind, _ in before]
    assert (kinds.count("instance"), kinds.count("queued-resource")) == (2, 1), before
    # the worst case: the timers fire just before the first machine is past its time
    fires_at = min(expires.values()) - 1
    clock.move(fires_at)
    assert not all_timers_fire()
    assert before <= set(site.left()), "nothing is ended before its time"
    late_s: dict[str, float] = {}
    while late_s.keys() != expires.keys():
        fires_at += PERIOD_S
        clock.move(fires_at)
        due = {name: at for name, at in expires.items() if name not in late_s and at <= fires_at}
        late_s |= lateness(due, fires_at, all_timers_fire, machines)
    print("ended past expires-at:", {name: f"{late_s[name]:.0f} s" for name in sorted(late_s)})
    assert max(late_s.values()) <= LIMIT_S
    # the clouds' own lists go on to show them for a while; a later call ends what hung on them
    eventually(lambda: not MACHINES & {kind for kind, _ in site.left()})
    eventually(lambda: only_shared(site) or all_timers_fire())
