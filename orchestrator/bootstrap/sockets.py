"""Sockets, bound before anything starts: what cannot be had is said in a sentence."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from orchestrator.cli.wiring import RefusedError

_PATH_LIMIT_BYTES = 100
"""The kernel takes 107 on Linux, 103 elsewhere."""
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def home_socket(path: Path) -> list[socket.socket]:
    """The home's own socket, for its owner only. Raises RefusedError."""
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        with _short_name(path) as name:
            bound.bind(name)
    except OSError as error:
        bound.close()
        raise RefusedError(
            f"{path} cannot be made: {error.strerror or error}; set SEATRIAL_HOME to another"
            " folder, with a shorter path"
        ) from error
    finally:
        os.umask(mask)
    return [bound]


def port_sockets(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host. Raises RefusedError."""
    bound: list[socket.socket] = []
    lacking: OSError | None = None
    try:
        for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                bound.append(socket.create_server(address[:2], family=family))
            except OSError as error:
                if error.errno not in _NO_SUCH_FAMILY:
                    raise
                lacking = error
        if lacking is not None and not bound:
            raise lacking
    except OSError as error:
        for one in bound:
            one.close()
        raise RefusedError(_why_not(host, port, error)) from error
    return bound


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use by another process: --port takes another"
    is_name = isinstance(error, socket.gaierror) or error.errno is None
    reason = error.strerror if is_name else os.strerror(error.errno or 0)
    return f"port {port} of {host} cannot be listened on: {reason}; see --host and --port"


@contextlib.contextmanager
def _short_name(path: Path) -> Iterator[str]:
    """A name of the file that is short enough for the kernel, where there is one."""
    if len(os.fsencode(path)) <= _PATH_LIMIT_BYTES or not Path("/proc/self/fd").is_dir():
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
