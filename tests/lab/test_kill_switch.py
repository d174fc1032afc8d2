"""Every controller killed with SIGKILL: the accounts end their machines themselves, TPUs included.

What ends them is what `seatrial bootstrap` deployed in the emulated accounts, run as it is. No
machine stands behind the clouds here, and no packet leaves the loopback.
"""

from __future__ import annotations

from collections.abc import Iterator
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

AHEAD_S = 24 * 3600
"""Past every expires-at of the run."""
MACHINES = {"instance", "node", "queued-resource"}


@pytest.fixture
def clock(tmp_path: Path) -> MovedClock:
    return MovedClock(tmp_path)


@pytest.fixture
def site() -> Iterator[Site]:
    with a_site(NoMachines(boot_delay_s=10**6)) as site:
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


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_clouds_end_what_dead_controllers_left(
    home: Home,
    site: Site,
    google: KillSwitch,
    clock: MovedClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)
    list(AwsAccountSetup({"project": "seatrial"}, asset_dir("templates")).apply())
    site.aws.functions.environment = clock.environment

    def all_timers_fire() -> bool:
        assert site.aws.functions.fire_timers() == 1
        assert site.aws.functions.runs[-1].returncode == 0, site.aws.functions.runs[-1].stderr
        status, done = google.fire()
        assert (status, done["failed"], done["unread"]) == (200, {}, [])
        return only_shared(site)

    matrix = release_matrix(tmp_path / "matrix.yaml", jobs=("moe",), platforms=PLATFORMS)
    run = home.launch(matrix)
    eventually(lambda: are_held(home, run))
    home.kill_controller()
    before = set(site.left())
    kinds = [kind for kind, _ in before]
    assert (kinds.count("instance"), kinds.count("queued-resource")) == (2, 1), before
    assert not all_timers_fire()
    assert before <= set(site.left()), "nothing is ended before its time"
    clock.move(AHEAD_S)
    # the first call, within five minutes, ends the machines; a later one what was attached to them
    all_timers_fire()
    eventually(lambda: not MACHINES & {kind for kind, _ in site.left()})
    eventually(lambda: only_shared(site) or all_timers_fire())
