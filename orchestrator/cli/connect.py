"""Connections to a controller, the home's socket or a URL, and their time limits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx

from orchestrator.cli.errors import AUTHENTICATION, CliError, EmptyHomeError, RefusedError
from orchestrator.cli.wiring import Wiring
from orchestrator.client.connection import AGENT, TIMEOUT, is_healthy
from orchestrator.client.errors import NoControllerError
from orchestrator.client.transport import WallClock

CONTROLLER_START_LIMIT_S = 60.0
"""Maximum seconds for the start of a background controller."""
CONTROLLER_POLL_S = 0.1
"""Seconds between two checks for a controller that is starting."""
RUN_POLL_LONGEST_S = 5.0
"""Maximum seconds between two polls of a watched run without events."""
RUN_POLL_SHORTEST_S = 1.0
"""Minimum seconds between two polls of a watched run, because each poll reads all cells."""
LOG_POLL_S = 0.5
"""Seconds between two reads of a followed log."""
WATCHED_LOG_POLL_S = 1.0
"""Seconds between two reads of the log of a watched run, which grows without events."""
RECONNECT_S = 1.0
"""Seconds before a broken stream of events is opened again."""
NO_ANSWER_LIMIT_S = 300.0
"""Maximum seconds without a response of the controller while a run is watched."""
RETEST_POLL_S = 0.5
"""Seconds between two polls of a retest of a bisection."""
INVENTORY_POLL_S = 10.0
"""Seconds between two inventories of the emergency stop."""
REPORT_LIMIT_S = 10.0
"""Maximum seconds to wait for the report of a finished run."""
REPORT_POLL_S = 0.1
"""Seconds between two checks for the report."""


SOCKET = "controller.sock"
LOG = "controller.log"
_PATH_LIMIT_BYTES = 100


class LocalConnection:
    """Connects to the controller of the home, and starts one in the background if none runs."""

    def __init__(self, home: Path, clock: WallClock, say: Callable[[str], None]) -> None:
        self.home = home
        self.where = f"the controller of {home}"
        self._clock = clock
        self._say = say
        self._starting = threading.Lock()
        self._address: str | None = None

    def open(self) -> httpx.Client:
        """Return a client of the controller. Raises NoControllerError if no controller runs."""
        socket = self.home / SOCKET
        try:
            there = socket.exists()
        except PermissionError:
            raise _not_ours(self.home) from None
        if not there:
            # The library would fail as well, but leave a socket open.
            raise NoControllerError(f"{self.where} does not run")
        if self._address is None:
            self._address = _reachable(socket)
        transport = httpx.HTTPTransport(uds=self._address)
        return _local(transport)

    def revive(self) -> None:
        """Start a controller, unless one answers."""
        with self._starting:
            if not self.answers():
                self._start()

    def answers(self) -> bool:
        """Return whether a controller answers. Raises CliError if it is another user's."""
        try:
            with self.open() as http:
                return is_healthy(http, timeout_s=2.0)
        except PermissionError:
            raise _not_ours(self.home) from None
        except httpx.ConnectError as error:
            if isinstance(_root(error), PermissionError):
                raise _not_ours(self.home) from None
            return False
        except (httpx.TransportError, NoControllerError):
            return False

    def _start(self) -> None:
        log = self.home / LOG
        try:
            _make_home(self.home)
            offset = log.stat().st_size if log.exists() else 0
            process = _spawn(log)
        except OSError as error:
            raise CliError(
                f"SEATRIAL_HOME {self.home} cannot be used: {error.strerror or error}",
                "Set SEATRIAL_HOME to a folder that you can write to.",
            ) from None
        self._say(f"starting a controller in the background (log: {log})")
        self._await(process, log, offset)

    def _await(self, process: subprocess.Popen[bytes], log: Path, offset: int) -> None:
        for _ in range(round(CONTROLLER_START_LIMIT_S / CONTROLLER_POLL_S)):
            if self.answers():
                return
            if process.poll() is not None and not self.answers():
                what = f"the controller ended at once, with exit code {process.returncode}"
                raise NoControllerError(what, *_tail(log, offset))
            self._clock.sleep(CONTROLLER_POLL_S)
        what = f"the controller does not answer after {CONTROLLER_START_LIMIT_S:.0f} s"
        raise NoControllerError(what, *_tail(log, offset))


class ReadingLine:
    """Connects to the controller that holds the home, or reads the home's files without one."""

    def __init__(self, controller: LocalConnection, wiring: Wiring) -> None:
        self.home = controller.home
        self.where = controller.where
        self._controller = controller
        self._wiring = wiring

    @property
    def is_held(self) -> bool:
        """Whether a controller holds the home, even if it does not answer yet."""
        return self._wiring.holder() is not None or self._controller.answers()

    def open(self) -> httpx.Client:
        """Return a client. Raises CliError if this version cannot read the home.

        Raises EmptyHomeError if the home has no database yet.
        """
        if self.is_held:
            return self._controller.open()
        try:
            transport = self._wiring.stored_reads()
        except RefusedError as error:
            raise CliError(str(error)) from None
        if transport is None:
            raise EmptyHomeError(
                f"SEATRIAL_HOME {self.home} holds no runs yet:"
                " `seatrial init` in a project, then `seatrial run seatrial.yaml`"
            )
        return _local(transport)

    def revive(self) -> None:
        """Revive the connection to the controller that holds the home; do nothing without one."""
        if self.is_held:
            self._controller.revive()


def _local(transport: httpx.BaseTransport) -> httpx.Client:
    return httpx.Client(
        transport=transport, base_url="http://localhost", timeout=TIMEOUT, headers=AGENT
    )


def _make_home(home: Path) -> None:
    """Create the home, readable by its owner only, and make a surrounding work tree ignore it."""
    if home.is_dir():
        return
    home.mkdir(mode=0o700, parents=True)
    (home / ".gitignore").write_text("*\n", encoding="ascii")


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _spawn(log: Path) -> subprocess.Popen[bytes]:
    # A separate session: an interrupt at this terminal must not reach it.
    with open(log, "ab", opener=_for_the_owner) as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "controller", "--until-idle"],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            close_fds=True,
        )


def _tail(log: Path, offset: int) -> list[str]:
    with log.open("rb") as file:
        file.seek(offset)
        lines = file.read().decode(errors="replace").splitlines()[-12:]
    if not lines:
        return [f"Its log {log} says nothing."]
    return [f"The end of its log {log}:", *(f"  {line}" for line in lines)]


def _reachable(path: Path) -> str:
    """Return a path to the socket that is short enough for the kernel."""
    if len(os.fsencode(path)) <= _PATH_LIMIT_BYTES or not Path("/proc/self/fd").is_dir():
        return str(path)
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return str(path)
    return f"/proc/self/fd/{folder}/{path.name}"


def _root(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


def _not_ours(home: Path) -> CliError:
    return CliError(
        f"{home / SOCKET} is closed to you: another user's controller takes no orders from you.",
        "Set SEATRIAL_HOME to a folder of your own, or SEATRIAL_URL and SEATRIAL_TOKEN.",
        code=AUTHENTICATION,
    )
