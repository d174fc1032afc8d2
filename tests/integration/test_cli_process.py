"""The command line as a process: interrupts, a terminal, and connections that break."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.unit.cli import runs
from tests.unit.cli.fake_controller import Answer, FakeController, Request, serving, serving_tcp

ROOT = Path(__file__).parents[2]
SEATRIAL = [sys.executable, "-m", "orchestrator"]
ID = runs.RUN_ID
CANCEL = f"/api/v1/runs/{ID}/cancel"
PATIENCE_S = 120
FORGOTTEN = ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "LINES")


def environment(**given: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SEATRIAL_") and name not in FORGOTTEN
    }
    return kept | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"} | given


def start(*args: str, stderr: int = subprocess.PIPE, **given: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*SEATRIAL, *args],
        env=environment(**given),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )


def until(there: Callable[[], object]) -> None:
    """Wait for something that a real process does."""
    deadline = time.monotonic() + PATIENCE_S
    while not there():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[FakeController]:
    with serving(tmp_path / "home", FakeController()) as fake:
        yield fake


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "home")


def test_an_interrupt_leaves_the_run_and_says_how_to_return(
    controller: FakeController, home: str
) -> None:
    with start("watch", ID, SEATRIAL_HOME=home) as process:
        until(lambda: controller.looks > 2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert out == b""
    assert f"seatrial watch {ID}" in err.decode()
    assert f"seatrial cancel {ID}" in err.decode()
    assert controller.sent("POST", CANCEL) == []


@pytest.mark.parametrize(
    ("args", "given", "number"),
    [
        ((), {"CI": "true"}, signal.SIGINT),
        (("--on-interrupt", "cancel"), {}, signal.SIGTERM),
    ],
)
def test_where_nobody_watches_an_interrupt_cancels_and_waits(
    controller: FakeController,
    home: str,
    args: tuple[str, ...],
    given: dict[str, str],
    number: signal.Signals,
) -> None:
    def cancelled(_: Request) -> Answer:
        controller.finish("cancelled")
        return Answer.of(controller.shown, 202)

    controller.answers["POST", CANCEL] = cancelled
    with start("watch", ID, *args, SEATRIAL_HOME=home, **given) as process:
        until(lambda: controller.looks > 2)
        (Path(home) / "runs" / ID / "report").mkdir(parents=True)
        (Path(home) / "runs" / ID / "report" / "SUMMARY.md").touch()
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 5
    assert out.decode().startswith("report: ")
    assert "run: cancelled" in err.decode()


def test_an_interrupt_is_heard_while_the_controller_hangs(
    controller: FakeController, home: str
) -> None:
    answers = threading.Event()

    def hang(looks: int) -> None:
        if looks > 2:
            answers.wait(PATIENCE_S)

    controller.on_look = hang
    with start("watch", ID, SEATRIAL_HOME=home) as process:
        until(lambda: controller.looks > 2)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S / 2)
    answers.set()
    assert process.returncode == 130


def test_a_watcher_outlives_its_connection_and_resumes_the_feed() -> None:
    controller = FakeController()
    with serving_tcp(controller) as port:
        url = f"http://127.0.0.1:{port}"
        process = start("watch", ID, "--json", SEATRIAL_URL=url)
        until(lambda: len(controller.sent("GET", f"/api/v1/runs/{ID}/events")) > 1)
    resumed = controller.sent("GET", f"/api/v1/runs/{ID}/events")[1]
    assert resumed.headers["Last-Event-ID"] == "1"
    assert process.stderr is not None
    for line in process.stderr:
        if b"trying again" in line:
            break
    assert f"{url} cannot be reached" in line.decode()
    controller.finish("failed")
    with serving_tcp(controller, port):
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert json.loads(out)["outcome"] == "failed"


def test_log_bytes_pass_through_untouched(controller: FakeController, home: str) -> None:
    controller.log = b"\xff\x00\x1b[31m\r\n"
    with start("logs", ID, "--cell", "gcp-l4", SEATRIAL_HOME=home) as process:
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, controller.log)


def test_output_that_is_cut_off_is_no_traceback(controller: FakeController, home: str) -> None:
    command = " ".join([*SEATRIAL, "show", ID, "--json", "|", "head", "-c", "1"])
    done = subprocess.run(
        ["bash", "-c", command], env=environment(SEATRIAL_HOME=home), capture_output=True
    )
    assert b"Traceback" not in done.stderr


def test_help_is_quick_and_loads_no_engine() -> None:
    code = (
        "import sys; from orchestrator.bootstrap.cli_wiring import CommandWiring;"
        "from orchestrator.cli.app import main; main(CommandWiring(), ['--help']);"
        "print(sorted({'sqlalchemy', 'dbos', 'paramiko', 'fastapi', 'alembic'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, check=True
    )
    assert done.stdout.decode().splitlines()[-1] == "[]"


class Terminal:
    """A process on a terminal of its own, and everything that it wrote there."""

    def __init__(self, columns: int, rows: int, *args: str, **given: str) -> None:
        self.master, slave = pty.openpty()
        self.resize(columns, rows)
        self.process = subprocess.Popen(
            [*SEATRIAL, *args],
            env=environment(**given),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.written = b""

    def resize(self, columns: int, rows: int) -> None:
        ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> bytes:
        if select.select([self.master], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):  # the process has gone
                self.written += os.read(self.master, 1 << 16)
        return self.written

    def end(self) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read()
        seen = -1
        while seen < len(self.written):  # a terminal hands on a little at a time
            seen = len(self.written)
            self.read()
        os.close(self.master)
        return self.process.wait(timeout=1)


def test_on_a_terminal_the_picture_has_a_screen_of_its_own(
    controller: FakeController, home: str
) -> None:
    terminal = Terminal(80, 24, "watch", ID, SEATRIAL_HOME=home)
    until(lambda: b"gcp-l4" in terminal.read())
    terminal.resize(60, 20)
    seen = len(terminal.written)
    until(lambda: b"gcp-l4" in terminal.read()[seen:])
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    text = terminal.written.decode()
    assert text.count("\x1b[?1049h") == text.count("\x1b[?1049l") == 1
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")
    after = text.split("\x1b[?1049l")[1]
    assert "✓ moe-demo" in after.replace("\x1b[0m", "").replace("\x1b[32m", "")
    assert f"seatrial watch {ID}" in after
    assert "\x1b[2J" not in text.split("\x1b[?1049h")[1]


@pytest.mark.parametrize("given", [{"CI": "1"}, {"TERM": "dumb"}])
def test_some_terminals_get_plain_lines(
    controller: FakeController, home: str, given: dict[str, str]
) -> None:
    terminal = Terminal(80, 24, "watch", ID, SEATRIAL_HOME=home, **given)
    until(lambda: b"aws-a10g: queued" in terminal.read())
    controller.answers["POST", CANCEL] = Answer.of(controller.shown, 202)
    terminal.process.send_signal(signal.SIGINT)
    if "CI" in given:
        until(lambda: controller.sent("POST", CANCEL))
        assert terminal.process.poll() is None  # it waits, and a second one leaves
        terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert b"\x1b[?1049h" not in terminal.written


def test_standard_output_may_be_closed(controller: FakeController, home: str) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *SEATRIAL, "show", ID]
    done = subprocess.run(
        command, env=environment(SEATRIAL_HOME=home), stderr=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_interrupt_while_the_modules_are_read_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    given = environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    done = subprocess.run([*SEATRIAL, "runs"], env=given, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_narrow_window_without_colours_keeps_the_runs_and_how_they_went(
    controller: FakeController, home: str
) -> None:
    page = {"items": [controller.shown], "next": None}
    controller.answers["GET", "/api/v1/runs"] = Answer.of(page)
    terminal = Terminal(40, 12, "runs", SEATRIAL_HOME=home, NO_COLOR="1")
    assert terminal.end() == 0
    head, first = terminal.written.decode().splitlines()[:2]
    assert "outcome" in head
    assert "launched" not in head
    assert ID in first
    assert "running" in first
    assert b"\x1b[3" not in terminal.written


def test_a_stream_of_another_alphabet_gets_marks_that_differ(
    controller: FakeController, home: str
) -> None:
    given = environment(SEATRIAL_HOME=home, PYTHONIOENCODING="ascii")
    done = subprocess.run([*SEATRIAL, "show", ID], env=given, capture_output=True, check=True)
    assert b" +" in done.stdout
    assert b" #" in done.stdout
