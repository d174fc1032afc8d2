"""``python -m tests.first_contact [aws] [gcp] [tpu]``: see docs/how-to/first-contact.md."""

from __future__ import annotations

import argparse
import io
import json
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.config import SettingsError, load
from tests.cloud_smoke.clouds import is_configured
from tests.first_contact import aws, google
from tests.first_contact.calls import Contact, ContactCall, Finding, Scrubber, in_order

CALLS = (*aws.CALLS, *google.CALLS)
CLOUDS = ("aws", "gcp", "tpu")


def main(words: Sequence[str], *, contact: Contact | None = None) -> int:
    """0: nothing was refuted. 1: something was. 2: it did not begin."""
    asked = _parse(words)
    try:
        project = load().gcp_project or ""
    except SettingsError as error:
        print(f"first-contact: {error}", file=sys.stderr)
        return 2
    chosen = [one for one in asked.clouds or CLOUDS if is_configured(one)]
    if not chosen:
        print(
            "first-contact: no cloud is configured here; see docs/how-to/clouds.md", file=sys.stderr
        )
        return 2
    contact = contact or Contact(lambda: datetime.now(UTC), time.sleep, Scrubber())
    contact.scrubber.hide(project, "project")
    calls = in_order(one for one in CALLS if one.cloud in chosen)
    findings = {}
    try:
        for call in calls:
            print(f"{call.number:2} {call.cloud}: {call.asks}; {_price(call)}", flush=True)
            if not (asked.yes or _agreed(call)):
                findings[call] = Finding("not shown", "was not wanted")
                continue
            findings[call] = _made(call, contact)
            print(f"   {findings[call].verdict}: {contact.scrubber.clean(findings[call].text)}")
    finally:
        path = _archive(asked.archive, findings, contact)
        print(f"archive: {path}")
    counts = [one.verdict for one in findings.values()]
    print(
        f"first-contact: {counts.count('confirmed')} confirmed, {counts.count('refuted')} refuted, "
        f"{counts.count('not shown')} not shown"
    )
    return 1 if "refuted" in counts else 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.first_contact")
    parser.add_argument("clouds", nargs="*", choices=[*CLOUDS, []], metavar="CLOUD")
    parser.add_argument("--yes", action="store_true", help="make every call without asking")
    parser.add_argument("--archive", type=Path, default=Path("."), metavar="DIR")
    return parser.parse_args(words)


def _price(call: ContactCall) -> str:
    return f"at most {call.ceiling_usd} USD" if call.ceiling_usd else "reads only, costs nothing"


def _agreed(call: ContactCall, ask: Callable[[str], str] = input) -> bool:
    if not sys.stdin.isatty():
        return False
    return ask(f"   make call {call.number}? [y/N] ").strip().lower() in ("y", "yes")


def _made(call: ContactCall, contact: Contact) -> Finding:
    try:
        return call.run(contact)
    except Exception as error:  # noqa: BLE001 - whatever a real cloud answers is what is sought
        contact.keep(call.number, "failed", repr(error))
        return Finding("not shown", f"{type(error).__name__}: {error}")


def _archive(folder: Path, findings: dict[ContactCall, Finding], contact: Contact) -> Path:
    """All raw answers and what they showed, scrubbed, in one file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"first-contact-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.tar.gz"
    told = [
        {
            "number": call.number,
            "cloud": call.cloud,
            "asks": call.asks,
            "assumes": call.assumes,
            "verdict": found.verdict,
            "text": found.text,
        }
        for call, found in findings.items()
    ]
    files = {"findings.json": contact.scrubber.clean(json.dumps(told, indent=1))}
    files |= {f"answers/{call.number:02}.json": contact.text(call.number) for call in findings}
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
