"""An account of this computer for one test: only the commands begun here know it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

ACCOUNT = "seatrial-local"
_PRIVATE = ("unshare", "--mount", "--propagation", "private")
_SETUP = """
set -e
folder=$1 prefix=$2
shift 2
mkdir -p "$folder/etc" "$folder/homes" "$folder/prefix"
cp -a /etc/. "$folder/etc"
mount --bind "$folder/etc" /etc
mount --bind "$folder/homes" /home
useradd --system --create-home --shell /usr/sbin/nologin seatrial-local
if [ -n "$prefix" ]; then  # our interpreter lies in a folder that is closed to others
    closed=$(dirname "$prefix")
    mkdir "$folder/prefix/$(basename "$prefix")"
    mount --bind "$prefix" "$folder/prefix/$(basename "$prefix")"
    mount --rbind "$folder/prefix" "$closed"
fi
. "$folder/setup.sh"
exec "$@"
"""


@cache
def account_missing() -> str | None:
    """Why no such account can be made here, or None."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "needs root and namespaces"
    if shutil.which("useradd", path="/usr/sbin:/sbin") is None:
        return "useradd is not installed (Debian: passwd)"
    if subprocess.run([*_PRIVATE, "true"], capture_output=True, check=False).returncode:
        return "mount namespaces cannot be made here"
    return None


needs_account = pytest.mark.skipif(account_missing() is not None, reason=str(account_missing()))


def beside_account(folder: Path, *command: str, setup: str = "") -> list[str]:
    """The words that start a command where the account exists; the process is the command's own.

    Args:
        folder: An empty one, for the files of its /etc and /home.
        command: The words.
        setup: More shell script, run as root before it.
    """
    folder.mkdir()
    (folder / "setup.sh").write_text(setup)
    words = ("/bin/sh", "-c", _SETUP, "sh", str(folder), _below_a_closed_folder())
    return [*_PRIVATE, *words, *command]


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that any user may enter; a test's own is private."""
    with tempfile.TemporaryDirectory(prefix="seatrial-open-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def _below_a_closed_folder() -> str:
    """What of our interpreter's path the account could not pass; empty where it can."""
    path = Path(sys.base_prefix)
    for folder in path.parents:
        if not folder.stat().st_mode & 0o001:
            return str(folder / path.relative_to(folder).parts[0])
    return ""
