"""ssh: opens a shell on the machine of a cell."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from orchestrator.cli.commands.options import RunArgument
from orchestrator.cli.errors import CliError
from orchestrator.cli.session import find_cells, session_of
from orchestrator.client.errors import UnreadableAnswerError
from orchestrator.client.transport import Json, read
from orchestrator.domain.machine import SshAccess
from orchestrator.domain.matrix import Host

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ADDRESS = re.compile(r"[0-9A-Za-z\[][0-9A-Za-z.:%\]_-]*")
_USER = re.compile(r"[A-Za-z_][0-9A-Za-z._-]*")
_HOST_KEY = re.compile(r"[0-9a-z@.-]+ [0-9A-Za-z+/=]+")
_FILE = re.compile(r"[0-9A-Za-z_][0-9A-Za-z._-]*")
_SSH_PORT = 22
_PORTS = 65536
_PROXIES = (("gcloud", "compute", "start-iap-tunnel"), ("aws", "ssm", "start-session"))
"""Programs that a controller may name as a proxy; it must not run others on this computer."""


def read_access(answer: Json) -> SshAccess:
    """Parse the SSH access. Raises CliError, whose text never contains the key."""
    refusal = CliError("the controller's answer does not say how to sign in there")
    try:
        access = read(SshAccess, answer)
    except UnreadableAnswerError:
        raise refusal from None
    if not _is_plain(access) or not _is_known_way(access):
        raise refusal
    return access


def _is_plain(access: SshAccess | Host) -> bool:
    """Return whether the values are safe as arguments of a program."""
    return bool(
        _ADDRESS.fullmatch(access.address)
        and _USER.fullmatch(access.user)
        and _HOST_KEY.fullmatch(access.host_key)
        and (not access.key_file or _FILE.fullmatch(access.key_file))
        and 0 < access.port < _PORTS
    )


def _is_known_way(access: SshAccess) -> bool:
    """Return whether the bastion's values are safe and the proxy program is in `_PROXIES`."""
    if access.bastion is not None and not _is_plain(access.bastion):
        return False
    command = access.proxy_command
    return not command or command[:3] in _PROXIES


def find_ssh() -> str:
    """Return OpenSSH's client. Raises CliError."""
    program = shutil.which("ssh")
    if program is None:
        raise CliError(
            "There is no `ssh` on this computer's PATH.",
            "Install OpenSSH's client (Debian: apt install openssh-client) and try again.",
        )
    return program


def find_key_file(name: str, home: Path | None, *, what: str = "machine") -> Path:
    """Return a key file below ``HOME/keys``. Raises CliError."""
    if home is None:
        raise CliError(
            f"The key to this {what} is HOME/keys/{name} on the controller's computer;"
            " run this command there."
        )
    path = home / "keys" / name
    if not path.is_file():
        raise CliError(f"{path} is not there: it is the key to this {what}")
    return path


def enter(
    program: str,
    access: SshAccess,
    key_file: Path | None,
    bastion_key: Path | None,
    command: Sequence[str],
) -> int:
    """Run ssh; return its exit code. The folder with the key is removed afterwards."""
    with _signals_end_it(), _private_folder() as folder:
        key = key_file or folder / "key"
        if key_file is None:
            _write(key, access.private_key)
        known = folder / "known_hosts"
        hosts = (access, access.bastion) if access.bastion else (access,)
        _write(known, "".join(f"{_host(one)} {one.host_key}\n" for one in hosts))
        proxy = _proxy(program, access, bastion_key, known)
        return _run(arguments(program, access, key, known, command, proxy=proxy))


def _proxy(program: str, access: SshAccess, bastion_key: Path | None, known: Path) -> Sequence[str]:
    """Return the proxy command to the machine; empty if ssh connects directly."""
    if access.bastion is None or bastion_key is None:
        return access.proxy_command
    shown = f"[{access.address}]" if ":" in access.address else access.address
    forward = ["-W", f"{shown}:{access.port}"]
    return arguments(program, access.bastion, bastion_key, known, (), more=forward)


def arguments(
    program: str,
    access: SshAccess | Host,
    key: Path,
    known: Path,
    command: Sequence[str],
    *,
    proxy: Sequence[str] = (),
    more: Sequence[str] = (),
) -> list[str]:
    """Return ssh's arguments, with the pinned host key and the one identity."""
    options = [
        "StrictHostKeyChecking=yes",
        f'UserKnownHostsFile="{known}"',
        "GlobalKnownHostsFile=/dev/null",
        "UpdateHostKeys=no",
        "CheckHostIP=no",
        "IdentitiesOnly=yes",
        # A shared connection may lead to a machine that had the address before.
        "ControlPath=none",
        "PasswordAuthentication=no",
        "KbdInteractiveAuthentication=no",
        "ForwardAgent=no",
    ]
    if proxy:
        options.append("ProxyCommand=" + shlex.join(proxy).replace("%", "%%"))
    chosen = [part for option in options for part in ("-o", option)]
    where = ["-p", str(access.port), "-l", access.user, *more, "--", access.address]
    return [program, "-i", str(key), *chosen, *where, *command]


def _host(access: SshAccess | Host) -> str:
    if access.port == _SSH_PORT:
        return access.address
    return f"[{access.address}]:{access.port}"


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text, encoding="ascii")


@contextmanager
def _private_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="seatrial-ssh-"))  # mode 0700
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _signals_end_it() -> Iterator[None]:
    """Convert the first signal to an exception, so the folder is removed; ignore later ones."""

    def end(number: int, _frame: FrameType | None) -> None:
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(command: Sequence[str]) -> int:
    with subprocess.Popen(command) as process:
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    return code if code >= 0 else 128 - code


SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Arguments after the cell belong to the remote command."""


def ssh_command(
    context: typer.Context,
    run: RunArgument,
    cell: Annotated[str, typer.Argument(metavar="CELL", help="The cell whose machine it is.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]",
            help="What to run there, as ssh takes it; a shell by default.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Open an SSH session on the machine that a cell holds. The exit code is ssh's own.

    Only the pinned host key is accepted. The key is in a private folder while ssh runs.
    """
    session = session_of(context)
    program = find_ssh()
    client = session.client()
    found = client.run(run).record
    (one,) = find_cells(found, cell)
    access = read_access(client.access(found.id, one.id).json)
    home = client.line.home
    key_file = find_key_file(access.key_file, home) if access.key_file else None
    bastion_key = (
        find_key_file(access.bastion.key_file, home, what="bastion") if access.bastion else None
    )
    words = command or []
    raise typer.Exit(enter(program, access, key_file, bastion_key, words[words[:1] == ["--"] :]))
