"""``python -m tests.cloud_smoke [aws] [gcp] [tpu] [--yes]``: see docs/how-to/cloud-smoke.md."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

from orchestrator.domain.machine import ProviderError
from tests.cloud_smoke import clouds, driving, kill_switch, recording
from tests.cloud_smoke.checks import Check, Seen, boot_s, of_cell
from tests.cloud_smoke.transcript import Disguise, Transcript
from tests.e2e.home import Home

CLEAN_S = 600.0
LOOK_S = 5.0


class UsageError(Exception):
    """It cannot begin; the text says what to do."""


def main(words: Sequence[str]) -> int:
    """0: nothing failed. 1: something did. 2: it did not begin."""
    asked = _parse(words)
    try:
        chosen = _chosen(asked.clouds)
        with tempfile.TemporaryDirectory(prefix="cloud-smoke-") as scratch:
            checks = _smoke(chosen, asked, Path(scratch))
    except (UsageError, RuntimeError) as error:
        print(f"cloud-smoke: {error}", file=sys.stderr)
        return 2
    except ProviderError as error:
        print(f"cloud-smoke: {error}", file=sys.stderr)
        return 1
    failed = sum(check.verdict == "FAILED" for check in checks)
    shown = sum(check.verdict == "ok" for check in checks)
    print(f"cloud-smoke: {shown} ok, {failed} failed, {len(checks) - shown - failed} not shown")
    return 1 if failed else 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cloud_smoke")
    parser.add_argument("clouds", nargs="*", choices=[*clouds.PLATFORMS, []], metavar="CLOUD")
    parser.add_argument("--yes", action="store_true", help="rent without asking")
    parser.add_argument("--transcript", type=Path, default=Path("."), metavar="DIR")
    parser.add_argument("--minutes", type=float, default=30.0, help="limits.max_minutes")
    parser.add_argument("--kill-minutes", type=float, default=4.0, help="0: no abandoned machine")
    return parser.parse_args(words)


def _chosen(named: Sequence[str]) -> list[str]:
    configured = [cloud for cloud in clouds.PLATFORMS if clouds.is_configured(cloud)]
    without = [cloud for cloud in named if cloud not in configured]
    if without:
        raise UsageError(
            f"{', '.join(without)}: no credentials are at hand; see docs/how-to/clouds.md"
        )
    if not configured:
        raise UsageError("no cloud is configured here; see docs/how-to/clouds.md")
    if not clouds.settings().get("ingress_cidr"):
        raise UsageError("SEATRIAL_INGRESS_CIDR is not set: the address that this computer has")
    return [cloud for cloud in configured if not named or cloud in named]


def _smoke(chosen: list[str], asked: argparse.Namespace, scratch: Path) -> list[Check]:
    asked.transcript.mkdir(parents=True, exist_ok=True)
    name = f"cloud-smoke-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.jsonl"
    path, secret = (asked.transcript / name).absolute(), secrets.token_bytes(16)
    transcript = recording.install(Transcript(path, Disguise(secret)))
    matrix = scratch / "matrix.json"
    home = driving.a_home(scratch, recording.environment(path, secret))
    try:
        total = _consent(home, matrix, chosen, asked)
        matrix.write_text(_matrix(chosen, asked, f"{total:.2f}"))
        with _nothing_left(home, chosen) as checks:
            checks += _rent(home, matrix, chosen, asked, transcript)
    finally:
        home.stop()
        if path.exists():
            print(f"transcript: {path}")
    return checks


def _matrix(chosen: list[str], asked: argparse.Namespace, max_usd: str) -> str:
    return json.dumps(clouds.matrix(chosen, minutes=asked.minutes, max_usd=max_usd))


def _consent(home: Home, matrix: Path, chosen: list[str], asked: argparse.Namespace) -> Decimal:
    """Tell what it can cost, cloud by cloud, and ask. Raises UsageError for a no."""
    matrix.write_text(_matrix(chosen, asked, "20.00"))
    plan = driving.plan(home, matrix)
    total = Decimal(0)
    for cloud in chosen:
        minutes = asked.kill_minutes + kill_switch.GRACE_S / 60 if _kills(cloud, asked) else 0
        worst = driving.worst_usd(plan, cloud, kill_minutes=minutes)
        if worst is None:
            note = next(one["note"] for one in plan["cells"] if one["cell"]["id"] == cloud)
            raise UsageError(f"{cloud}: its price is not known, so nothing is rented. {note}")
        print(f"{cloud:4} at most {worst:.2f} USD")
        total += worst
    print(f"all  at most {total:.2f} USD")
    for each in plan["headroom"]:
        print(f"     {each['sentence']}")
    if asked.yes:
        return total
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to ask; --yes rents without asking")
    if input("Rent them? [y/N] ").strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was rented")
    return total


def _kills(cloud: str, asked: argparse.Namespace) -> bool:
    return asked.kill_minutes > 0 and cloud in clouds.ENDS_BY_ITSELF


def _rent(
    home: Home,
    matrix: Path,
    chosen: list[str],
    asked: argparse.Namespace,
    transcript: Transcript,
) -> list[Check]:
    run_id = driving.launch(home, matrix)
    abandoned = [
        kill_switch.abandon(cloud, minutes=asked.kill_minutes)
        for cloud in chosen
        if _kills(cloud, asked)
    ]
    run, seen = driving.watched(home, run_id)
    found = []
    for cell in run["cells"]:
        found += of_cell(cell["id"], cell, seen.get(cell["id"], Seen()))
        boot = boot_s(cell)
        if boot is not None:
            transcript.fact(cell["id"], "boot_s", boot)
    found += [_about_kill(one) for one in abandoned]
    if "tpu" in chosen:
        found.append(Check("tpu", kill_switch.NAME, "not shown", "a TPU VM has none of its own"))
    for check in found:
        print(check.line())
    return found


def _about_kill(one: kill_switch.Abandoned | Check) -> Check:
    return one if isinstance(one, Check) else kill_switch.outlived(one)


@contextmanager
def _nothing_left(home: Home, chosen: list[str]) -> Iterator[list[Check]]:
    """Whatever happens inside: no controller goes on, and what is left is ended and told."""
    checks: list[Check] = []
    try:
        yield checks
    finally:
        home.stop()
        for cloud in chosen:
            check = swept(cloud)
            print(check.line())
            checks.append(check)


def swept(cloud: str, *, limit_s: float = CLEAN_S) -> Check:
    """End everything of the smoke's projects; only what is shared may have been there."""
    found: set[str] = set()
    end = time.monotonic() + limit_s
    while True:
        try:
            lingering = _end_all(cloud)
        except ProviderError as error:
            lingering = [f"unknown: {error}"]
        found |= set(lingering)
        if not lingering or time.monotonic() > end:
            break
        time.sleep(LOOK_S)
    owned = sorted(name for name in found if not name.startswith("shared "))
    if lingering:
        return Check(cloud, "nothing-left", "FAILED", f"STILL THERE: {', '.join(lingering)}")
    if owned:
        return Check(cloud, "nothing-left", "FAILED", f"the smoke had to end {', '.join(owned)}")
    return Check(cloud, "nothing-left", "ok", f"{len(found)} shared rules were taken away")


def _end_all(cloud: str) -> list[str]:
    lingering = []
    for project in (clouds.PROJECT, clouds.KILL_PROJECT):
        rents = clouds.provider(cloud, project)
        for machine in clouds.left(cloud, project):
            shared = machine.tags.get("seatrial-shared") == "true"
            lingering.append(f"{'shared ' if shared else ''}{machine.kind} {machine.id}")
            rents.terminate(machine.id)
    return lingering


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(sys.argv[1:]))
