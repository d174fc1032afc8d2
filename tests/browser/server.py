"""A controller of the tests' own, as `seatrial serve` starts it, over a home that has seen much."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from tests.ssh_hosts import free_port

ROOT = Path(__file__).resolve().parents[2]
_START_TIMEOUT_S = 120
_SIGN_IN = re.compile(r"sign in: (\S+)\n")


Begin = Callable[[list[str]], list[str]]


@dataclass(frozen=True)
class Served:
    """Where it answers, and a link that fills the sign-in in with the first token."""

    origin: str
    sign_in: str
    home: Path

    def url(self, path: str) -> str:
        """The address of one of its pages."""
        return self.origin + path


@contextmanager
def served(
    home: Path,
    *options: str,
    port: int = 0,
    begin: Begin = list,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Served]:
    """Serve a home on a port, a free one if none is named, until done with.

    `begin` makes of the command's words those that start it; `settings` are more variables.
    """
    log = home / "served.log"
    number = str(port or free_port())
    command = begin([sys.executable, "-m", "orchestrator", "serve", "--port", number, *options])
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=out, env={**_environment(home), **settings}
        )
    try:
        parts = urlsplit(_printed_link(process, log))
        origin = f"{parts.scheme}://{parts.netloc}"
        # The printed link signs in once: tests sign in more often.
        token = (home / "token").read_text(encoding="ascii").strip()
        yield Served(origin, f"{origin}{parts.path}?token={token}", home)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEATRIAL_")}
    return kept | {"SEATRIAL_HOME": str(home), "PYTHONUNBUFFERED": "1"}


def _printed_link(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < until:
        said = log.read_text("utf-8", "replace")
        if found := _SIGN_IN.search(said):
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError(f"`serve` did not come up:\n{log.read_text('utf-8', 'replace')[-4000:]}")
