"""A home of Seatrial's own for one test, driven as a person would: by the command line and REST."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.ssh_hosts import free_port

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 300.0
TEMPORARY = {"TMPDIR": tempfile.gettempdir()}
"""For every command: what one that is killed leaves behind goes with the test run's folder."""
PATIENT_PIP = {"PIP_RETRIES": "8", "PIP_DEFAULT_TIMEOUT": "60"}
"""For every command: an index may be out of reach for a moment."""


class Home:
    """One ``SEATRIAL_HOME`` and the commands that use it."""

    def __init__(self, path: Path, **environment: str) -> None:
        self.path = path
        self.url = ""
        """Where it answers to tokens, while it is served."""
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "SEATRIAL_HOME": str(path),
            "PYTHONPATH": str(ROOT),
            **TEMPORARY,
            **PATIENT_PIP,
            **environment,
        }

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "orchestrator", *words]

    def seatrial(self, *words: str, timeout: float = DEADLINE_S, status: int = 0) -> str:
        """Run a command to its end, check its exit code, return its standard output."""
        done = subprocess.run(
            self.command(*words),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def launch(self, matrix: Path) -> str:
        """Start a run without waiting for it; return its id."""
        return self.seatrial("run", str(matrix), "-y", "--detach", status=130).split()[-1]

    def json(self, *words: str) -> Any:
        return json.loads(self.seatrial(*words, "--json"))

    def client(self) -> httpx.Client:
        path = str(self.path / "controller.sock")
        with socket.socket(socket.AF_UNIX) as knock:
            # The library leaves its socket open where nobody answers, for another test to find.
            knock.connect(path)
        transport = httpx.HTTPTransport(uds=path)
        return httpx.Client(
            transport=transport, base_url="http://localhost/api/v1", timeout=DEADLINE_S
        )

    def get(self, path: str) -> Any:
        with self.client() as client:
            answer = client.get(path)
            answer.raise_for_status()
            return answer.json()

    def controller_pid(self) -> int:
        return int((self.path / "controller.pid").read_text())

    def start_controller(self) -> None:
        """Have one started by a command that needs one; this command finds nothing to do."""
        self.seatrial("cancel", "no-such-run", status=2)
        assert alive(self.controller_pid())

    def kill_controller(self) -> None:
        """End it as a power cut would, and wait until it is gone."""
        pid = self.controller_pid()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not alive(pid))

    def stop(self) -> None:
        """End whatever controller this home has."""
        try:
            pid = self.controller_pid()
        except FileNotFoundError:
            return
        if alive(pid):
            os.kill(pid, signal.SIGTERM)
            try:
                eventually(lambda: not alive(pid), deadline_s=60)
            except AssertionError:
                os.kill(pid, signal.SIGKILL)

    def log(self) -> str:
        path = self.path / "controller.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def tests_stored(self, run_id: str) -> int:
        """How many tests of the run have a result by now."""
        counts = self.get(f"/runs/{run_id}")["counts"]
        return sum(counts.values()) - counts["missing"] - counts["not_run"]


def alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def eventually(true: Callable[[], object], *, deadline_s: float = DEADLINE_S) -> None:
    """Wait until it is true; it may raise while a controller is away."""
    end = time.monotonic() + deadline_s
    said: object = None
    while time.monotonic() < end:
        try:
            if true():
                return
        except (httpx.HTTPError, FileNotFoundError, ConnectionError) as error:
            said = error
        time.sleep(0.05)
    raise AssertionError(f"not true within {deadline_s} s: {said}")


@contextmanager
def a_home(path: Path, **environment: str) -> Iterator[Home]:
    home = Home(path, **environment)
    try:
        yield home
    finally:
        home.stop()


@contextmanager
def serving(
    home: Home,
    *options: str,
    begun_by: Callable[..., list[str]] = lambda *words: [*words],
    **environment: str,
) -> Iterator[subprocess.Popen[bytes]]:
    """A controller that stays, as a person starts one.

    Args:
        home: Whose; its `url` is set.
        options: More of the command line.
        begun_by: Makes of the command's words those that start it.
        environment: More variables.
    """
    port = free_port()
    home.url = f"http://127.0.0.1:{port}"
    home.path.mkdir(parents=True, mode=0o700, exist_ok=True)
    words = begun_by(*home.command("serve", "--port", str(port), *options))
    with (home.path / "served.log").open("wb") as log:
        variables = {**home.environment, **environment}
        process = subprocess.Popen(words, env=variables, stdout=log, stderr=log)
    try:
        eventually(lambda: home.get("/schedules"))
        yield process
    finally:
        if alive(process.pid):
            process.send_signal(signal.SIGTERM)
        process.wait(timeout=DEADLINE_S)
