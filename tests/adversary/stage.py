"""Where lies are told: a home, and a machine."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.home import Home, a_home
from tests.login_hosts import NOPASSWD, LoginHost

LOCAL = "  - {id: here, provider: local}\n"
HOST_PYTHON = "/usr/bin/python3"
"""Every user of a host may run it, which a Python in somebody's home is not."""


@dataclass(frozen=True)
class Stage:
    """A home, and the machine that is its platform `here`."""

    home: Home
    place: str
    row: str
    python: str


@contextlib.contextmanager
def a_stage(place: str, folder: Path) -> Iterator[Stage]:
    """A home of its own; over SSH with a host that makes its jobs another user's."""
    folder.mkdir()
    folder.chmod(0o755)
    with a_home(folder / "home") as home:
        if place == "local":
            yield Stage(home, place, LOCAL, sys.executable)
            return
        with LoginHost(folder, setup=NOPASSWD) as host:
            keys = home.path / "keys"
            keys.mkdir(parents=True, mode=0o700)
            shutil.copy(host.keys_dir / f"{host.name}_key", keys)
            endpoint = host.endpoint()
            row = (
                "  - id: here\n    provider: static\n    hosts:\n"
                f"      - {{address: {endpoint.address}, port: {endpoint.port}, "
                f"user: {endpoint.user}, key_file: {endpoint.key_file}, "
                f"host_key: {endpoint.host_key}}}\n"
            )
            yield Stage(home, place, row, HOST_PYTHON)
