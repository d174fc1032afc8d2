"""One set of questions to every shell, and what only a connection can get wrong."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.domain.machine import (
    CommandTimeoutError,
    ConnectionLostError,
    FakeEndpoint,
    Shell,
    ShellError,
)
from runners.shell import open_shell
from runners.shell.local import LocalShell
from runners.shell.stdin_feeder import OutputLimitError
from tests.waiting import until

MIB = 1024 * 1024


def test_a_command_answers_with_any_status_and_both_streams(shell: Shell) -> None:
    done = shell.run("printf out; printf err >&2; exit 7")
    assert (done.status, done.stdout, done.stderr) == (7, b"out", b"err")
    for status in (0, 1, 2, 126, 127, 128, 255):
        done = shell.run(f"exit {status}")
        assert (done.status, done.stdout, done.stderr) == (status, b"", b"")


def test_without_input_the_command_reads_an_end_at_once(shell: Shell) -> None:
    assert shell.run("cat; echo ended", timeout_s=30).stdout == b"ended\n"


def test_the_status_may_come_long_after_the_output(shell: Shell) -> None:
    done = shell.run("echo said; exec >&- 2>&-; sleep 0.3; exit 9")
    assert (done.status, done.stdout) == (9, b"said\n")


def test_input_and_output_are_binary_safe(shell: Shell) -> None:
    data = bytes(range(256)) * 1000 + b"\r\n\0\xff~.\r\n"
    assert shell.run("cat", stdin=[data[:7], b"", data[7:]]).stdout == data


def test_the_command_is_posix_sh_whatever_the_account_uses(shell: Shell) -> None:
    command = "a='it'\\''s \"x\" $y'\nb=$(printf '%s|' \"$a\" \\\n  '*' ';')\nprintf %s \"$b\""
    assert shell.run(command).stdout == b'it\'s "x" $y|*|;|'


def test_unusual_file_names_survive_quoting(shell: Shell, tmp_path: Path) -> None:
    name = "a b'c\"d$e`f\\g|h;i&j\nk\tl*\U0001f6a2é"
    path = shlex.quote(str(tmp_path / name))
    assert shell.run(f"cat > {path}", stdin=[b"kept"]).status == 0
    assert (tmp_path / name).read_bytes() == b"kept"
    assert shell.run(f"cat {path}").stdout == b"kept"


def test_fifty_megabytes_in_and_out_at_once(shell: Shell) -> None:
    block = os.urandom(MIB)
    digest = hashlib.sha256(block * 50).digest()
    done = shell.run("cat", stdin=(block for _ in range(50)), timeout_s=120)
    assert done.status == 0
    assert hashlib.sha256(done.stdout).digest() == digest


def test_a_lot_on_both_output_streams(shell: Shell) -> None:
    command = "head -c 9000000 /dev/zero >&2 & head -c 9000000 /dev/zero; wait"
    done = shell.run(command, timeout_s=60)
    assert (len(done.stdout), len(done.stderr)) == (9_000_000, 9_000_000)


def test_a_command_that_stops_reading_early_still_answers(shell: Shell) -> None:
    fed = _Endless()
    done = shell.run("head -c 10 >/dev/null; echo full >&2; exit 3", stdin=fed, timeout_s=120)
    assert (done.status, done.stderr) == (3, b"full\n")
    assert fed.given_bytes < 64 * MIB


def test_a_command_that_reads_nothing_still_answers(shell: Shell) -> None:
    assert shell.run("exit 5", stdin=_Endless(), timeout_s=120).status == 5


def test_time_is_bounded(shell: Shell) -> None:
    shell.run("true")
    began = time.monotonic()
    with pytest.raises(CommandTimeoutError, match=r"within 1 s"):
        shell.run("sleep 600", timeout_s=1)
    assert time.monotonic() - began < 100
    assert shell.run("echo next").stdout == b"next\n"


def test_time_is_bounded_while_input_is_not_taken(shell: Shell) -> None:
    shell.run("true")
    began = time.monotonic()
    with pytest.raises(CommandTimeoutError):
        shell.run("sleep 600", stdin=_Endless(), timeout_s=1)
    assert time.monotonic() - began < 100
    assert shell.run("echo next").stdout == b"next\n"


def test_output_is_bounded(shell: Shell) -> None:
    with pytest.raises(OutputLimitError, match="more than 1000000 bytes"):
        shell.run("yes", output_limit_bytes=1_000_000, timeout_s=30)
    assert shell.run("echo next").stdout == b"next\n"


def test_output_of_exactly_the_limit_is_an_answer(shell: Shell) -> None:
    command = "head -c 600 /dev/zero; head -c 400 /dev/zero >&2"
    assert shell.run(command, output_limit_bytes=1000).status == 0
    with pytest.raises(OutputLimitError):
        shell.run(command, output_limit_bytes=999)


def test_a_command_killed_by_a_signal_has_no_status(shell: Shell) -> None:
    with pytest.raises(ConnectionLostError, match="signal"):
        shell.run("kill -9 $$")
    assert shell.run("echo next").stdout == b"next\n"


def test_an_error_of_the_input_is_the_callers(shell: Shell) -> None:
    def broken() -> Iterator[bytes]:
        yield b"some"
        raise LookupError("the archive went away")

    with pytest.raises(LookupError, match="went away"):
        shell.run("cat >/dev/null", stdin=broken(), timeout_s=30)
    assert shell.run("echo next").stdout == b"next\n"


def test_a_detached_process_outlives_its_command(shell: Shell, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    inner = shlex.quote(f"sleep 5; echo late > {shlex.quote(str(mark))}")
    command = f"setsid sh -c {inner} </dev/null >/dev/null 2>&1 & echo started"
    assert shell.run(command).stdout == b"started\n"
    assert not mark.exists()
    shell.close()
    until(mark.exists)


def test_several_threads_may_use_one_shell(shell: Shell) -> None:
    answers: dict[int, bytes] = {}

    def ask(number: int) -> None:
        answers[number] = shell.run(f"sleep 0.05; echo {number}", timeout_s=60).stdout

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {n: f"{n}\n".encode() for n in range(20)}


def test_closing_twice_is_harmless_and_a_later_command_works(shell: Shell) -> None:
    shell.close()
    shell.close()
    assert shell.run("echo again").stdout == b"again\n"


def test_a_machine_in_memory_has_no_shell(tmp_path: Path) -> None:
    with pytest.raises(ShellError, match="m-1 exists in memory only"):
        open_shell(FakeEndpoint("m-1"), keys_dir=tmp_path)


class _Endless:
    """Input without an end, which counts what was taken of it."""

    def __init__(self) -> None:
        self.given_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        block = bytes(64 * 1024)
        while True:
            self.given_bytes += len(block)
            yield block


def test_commands_here_begin_with_the_mask_that_is_asked_for() -> None:
    for mask in (0o027, 0o002):
        assert int(LocalShell(umask=mask).run("umask").stdout, 8) == mask


def test_commands_here_do_not_see_the_environment_that_seatrial_runs_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\necho seatrial\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", os.pathsep.join([f"{tmp_path}/bin/", os.defpath]))
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    seen = LocalShell().run('echo "$PATH:$VIRTUAL_ENV"; command -v python3').stdout.decode()
    assert str(tmp_path) not in seen
    monkeypatch.setenv("VIRTUAL_ENV", "/another")
    assert LocalShell().run('printf %s "$VIRTUAL_ENV"').stdout == b"/another"
