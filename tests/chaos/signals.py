"""SIGKILL, SIGTERM, SIGSTOP and SIGCONT for a real controller, at random moments.

It runs one matrix on this computer and one on three emulated clouds, whose machines are made and
never answer: the first has to end as if nothing had happened, and of the second no machine may be
left or made twice.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.home import Home, alive, eventually
from tests.e2e.payloads import Steps, matrix
from tests.lab.google.quotas_cloud import QuotasCloud
from tests.lab.machines import NoMachines
from tests.lab.site import Site, a_site, release_matrix, served
from tests.lab.test_kill_controller import PLATFORMS, SHARED, leases, never_up

TESTS = 40
_PATIENCE_S = 400.0


@contextmanager
def _home(folder: Path) -> Iterator[tuple[Home, Site, NoMachines]]:
    machines = NoMachines(boot_delay_s=10**6)
    with a_site(machines) as site:
        never_up(site)
        with QuotasCloud(quotas=site.tpu.quotas) as quotas:
            endpoint = quotas.endpoint_url
            home = served(site, folder / "home", SEATRIAL_GCP_QUOTAS_ENDPOINT=endpoint)
            with home as opened:
                yield opened, site, machines
        site.aws.raise_crashes()


def _kill(home: Home, _: random.Random) -> None:
    home.kill_controller()
    home.start_controller()


def _terminate(home: Home, _: random.Random) -> None:
    pid = home.controller_pid()
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not alive(pid))
    home.start_controller()


def _pause(home: Home, chance: random.Random) -> None:
    pid = home.controller_pid()
    os.kill(pid, signal.SIGSTOP)
    time.sleep(chance.uniform(0.5, 4))
    os.kill(pid, signal.SIGCONT)


SIGNALS: dict[str, Callable[[Home, random.Random], None]] = {
    "SIGKILL": _kill,
    "SIGTERM": _terminate,
    "SIGSTOP, SIGCONT": _pause,
}


def signalled(folder: Path, chance: random.Random, *, seconds: float) -> Counter[str]:
    """Run under signals for at most so long; return them. Raises AssertionError.

    Args:
        folder: An empty folder.
        chance: Chooses signals and moments.
        seconds: Then the runs are left alone until they end.
    """
    steps = Steps(folder / "steps", tests=TESTS, seconds=0.4)
    sent: Counter[str] = Counter()
    with _home(folder) as (home, site, machines):
        here = home.launch(matrix(folder / "here.yaml", steps.folder))
        release = release_matrix(folder / "clouds.yaml", jobs=("moe",), platforms=PLATFORMS)
        there = home.launch(release)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.1, 4))
            name = chance.choice(list(SIGNALS))
            SIGNALS[name](home, chance)
            sent[name] += 1
        home.seatrial("watch", here, status=1, timeout=_PATIENCE_S)
        steps.check(home.json("show", here))
        home.seatrial("cancel", there)
        eventually(lambda: _finished(home, there), deadline_s=_PATIENCE_S)
        _check_books(home, site, machines, there)
    return sent


def _finished(home: Home, run: str) -> bool:
    found: dict[str, Any] = home.get(f"/runs/{run}")
    return found["state"] == "finished"


def _check_books(home: Home, site: Site, machines: NoMachines, run: str) -> None:
    eventually(lambda: {kind for kind, _ in site.left()} <= SHARED, deadline_s=_PATIENCE_S)
    assert machines.live() == ()
    found = leases(home, run)
    assert {lease["state"] for lease in found} == {"gone"}
    named = Counter(lease["machine_id"] for lease in found if lease["machine_id"])
    assert not [name for name, count in named.items() if count > 1], named
    made = Counter(spec.cloud for spec in machines.booted)
    leased = Counter(lease["provider"] for lease in found)
    assert made <= leased, f"machines {made}, leases {leased}"
