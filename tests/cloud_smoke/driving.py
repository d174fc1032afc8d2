"""Drives the product as a person would, in a home of its own, and looks on from outside."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any

import httpx

from tests.cloud_smoke.checks import Seen
from tests.cloud_smoke.clouds import PROJECT, Times, times
from tests.e2e.home import ROOT, Home

LOOK_S = 3.0
RUN_S = 3600.0
PLAN_S = 300.0
BORDER = Path(__file__).with_name("border")
_HELD = frozenset({"preparing", "running", "collecting"})


def a_home(folder: Path, recording: Mapping[str, str]) -> Home:
    """A home whose controllers see this environment, and record what they ask of clouds."""
    own = {
        "SEATRIAL_PROJECT": PROJECT,
        "SEATRIAL_HOME": str(folder / "home"),
        "PYTHONPATH": os.pathsep.join([str(BORDER), str(ROOT)]),
    }
    gone = {"SEATRIAL_URL", "SEATRIAL_TOKEN", "SEATRIAL_DATABASE_URL"}
    given = {name: value for name, value in os.environ.items() if name not in gone}
    return Home(folder / "home", **{**given, **own, **recording})


def plan(home: Home, matrix: Path) -> dict[str, Any]:
    """What the launch would do, and cost at most. Raises RuntimeError with the reason."""
    return json.loads(_seatrial(home, "plan", str(matrix), "--json"))


def launch(home: Home, matrix: Path) -> str:
    """Start the run; its id."""
    return _seatrial(home, "run", str(matrix), "-y", "--detach", good=130).split()[-1]


def _seatrial(home: Home, *words: str, good: int = 0) -> str:
    done = subprocess.run(
        home.command(*words),
        env=home.environment,
        capture_output=True,
        text=True,
        timeout=PLAN_S,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != good:
        raise RuntimeError(f"seatrial {words[0]} failed ({done.returncode}): {done.stderr.strip()}")
    return done.stdout


def worst_usd(plan: Mapping[str, Any], cloud: str, *, kill_minutes: float) -> Decimal | None:
    """The most that a cloud's cell and its abandoned machine can cost; None if unknown."""
    cell = next(cell for cell in plan["cells"] if cell["cell"]["id"] == cloud)
    hourly = [place["usd_per_hour"] for place in cell["places"]]
    if cell["worst_usd"] is None or not hourly or None in hourly:
        return None
    abandoned = max(map(Decimal, hourly)) * Decimal(str(kill_minutes)) / 60
    return (Decimal(cell["worst_usd"]) + abandoned).quantize(Decimal("0.01"), ROUND_CEILING)


def watched(home: Home, run_id: str) -> tuple[dict[str, Any], dict[str, Seen]]:
    """Follow the run to its end; what each cell's machine presented meanwhile.

    Raises:
        TimeoutError: It did not end; whoever called ends what is left.
    """
    seen: dict[str, Seen] = {}
    end = time.monotonic() + RUN_S
    while time.monotonic() < end:
        try:
            run = home.get(f"/runs/{run_id}")
        except (httpx.HTTPError, OSError):
            time.sleep(LOOK_S)
            continue
        if run["state"] == "finished":
            return run, {cell["id"]: _told(cell, seen) for cell in run["cells"]}
        for cell in run["cells"]:
            if cell["id"] not in seen and cell["state"] in _HELD:
                _ask_for_key(home, run_id, cell["id"], seen)
        time.sleep(LOOK_S)
    raise TimeoutError(f"run {run_id} is not over after {RUN_S:.0f} s")


def _ask_for_key(home: Home, run_id: str, cell: str, seen: dict[str, Seen]) -> None:
    try:
        access = home.get(f"/runs/{run_id}/cells/{cell}/access")
    except (httpx.HTTPError, OSError):
        return  # the machine went away between the two questions; the check says "not shown"
    offered = _keyscan(access["address"], access["port"])
    if offered:
        seen[cell] = Seen(pinned=access["host_key"], offered=tuple(offered))


def _keyscan(address: str, port: int) -> Sequence[str]:
    asked = ["ssh-keyscan", "-T", "10", "-t", "ed25519", "-p", str(port), address]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    lines = (line.split(maxsplit=1) for line in done.stdout.splitlines() if line[:1] != "#")
    return [words[1] for words in lines if len(words) == 2]


def _told(cell: Mapping[str, Any], seen: Mapping[str, Seen]) -> Seen:
    found = seen.get(cell["id"], Seen())
    lease = cell["leases"][-1] if cell["leases"] else None
    if not lease or not lease["machine_id"]:
        return found
    try:
        return replace(found, times=times(cell["platform"]["id"], lease["machine_id"]))
    except Exception as error:  # noqa: BLE001 - any SDK's; the check tells that it is not shown
        return replace(found, times=Times(None, None, f"{type(error).__name__}: {error}"))
