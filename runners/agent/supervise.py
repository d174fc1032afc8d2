"""Watches one process of a job, from its start until none of its descendants is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Mapping, Optional, Sequence, Set, Tuple

from . import bounded_process, processes
from .attempt_context import AttemptContext
from .job_output import JobOutput
from .plan import PlanJob

_OOM_COUNTERS = (Path("/proc/vmstat"), Path("/sys/fs/cgroup/memory.events"))
_LOOK_S = 0.2
_SOURCES_S = 0.1
_DUMP_S = 3.0
_DRAIN_S = 5.0
_AFTERGLOW_S = 0.5
_HURRIED_GRACE_S = 1.0
_OOM_SCORE = "500"


@dataclass(frozen=True)
class Ended:
    """The end of a process: by itself (``cause`` None), or by the agent."""

    exit_code: Optional[int]
    signal: Optional[int]
    cause: Optional[str]
    detail: str


class Watch:
    """Starts a process and watches its output, its records, its clock and the disk."""

    def __init__(
        self,
        context: AttemptContext,
        job: PlanJob,
        output: JobOutput,
        *,
        deadline: float,
        poll: Callable[[], bool],
        running: Callable[[], Optional[str]],
        own: Optional[Callable[[int], Set[int]]] = None,
    ) -> None:
        """Prepare to watch.

        Args:
            context: The shared state of the attempt.
            job: The job of the process.
            output: Receives its output.
            deadline: End of the job's time, on the monotonic clock.
            poll: Reads the job's events and records; returns whether there were any.
            running: Returns the running test, or None.
            own: Returns the processes that belong to one; by default all of the attempt's.
        """
        self._context = context
        self._job = job
        self._output = output
        self._deadline = deadline
        self._poll = poll
        self._running = running
        self._own = own or (lambda pid: processes.of_job(pid, context.attempt.folder))
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._heard_at = 0.0
        self.longest_idle_s = 0.0
        """The longest time without output or a record while no test ran."""
        self._polled_at = 0.0
        self._cleared: Set[int] = set()
        self.afterglow_s = _AFTERGLOW_S
        """Time for processes to end that outlive the main process."""
        self.left_behind = ""
        """Which processes outlived the main process and were ended, for a person."""
        self._oom_kills = oom_kills()

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        account: bounded_process.Account,
        started: Callable[[int], None],
    ) -> Ended:
        """Run a process to its end, or end it at a limit.

        Raises:
            OSError: it cannot be started.
        """
        try:
            self.begin(argv, env=env, account=account, started=started)
            while True:
                ended = self.look(_LOOK_S)
                if ended is not None:
                    return ended
                self._context.heartbeat.beat(self._job.id, self._running(), self.silence())
        finally:
            self.clear_away()

    def begin(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        account: bounded_process.Account,
        started: Callable[[int], None],
    ) -> None:
        """Start a process and watch it; its descendants are killed at the end.

        Raises:
            OSError: it cannot be started.
        """
        write_end = self._output.open_pipe()
        try:
            child = bounded_process.spawn(
                argv, stdout=write_end, env=env, cwd=self._context.attempt.payload, account=account
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._output.close_pipe()
            raise OSError(f"{argv[0]} cannot be started: {error}") from error
        finally:
            os.close(write_end)
        self._child = child
        self._heard_at = time.monotonic()
        _prefer_as_victim(child.pid)
        self._context.events.on_full = lambda: self._kill_now(child.pid)
        started(child.pid)

    def look(self, wait_s: float, *, at_rest: bool = False) -> Optional[Ended]:
        """Wait for output; return how the process ended or was ended, or None while it runs.

        Args:
            wait_s: Maximum seconds to wait.
            at_rest: The process waits for its turn and may be silent.
        """
        child = self._child
        assert child is not None
        if self._listen(wait_s) or at_rest:
            self._heard_at = time.monotonic()
        elif self._running() is None:
            silent_s, _ = self.silence()
            self.longest_idle_s = max(self.longest_idle_s, silent_s)
        if child.poll() is not None:
            return self._natural(child.returncode)
        reason = self._why_end()
        return self._end(child, *reason) if reason is not None else None

    def silence(self) -> Tuple[float, float]:
        """Return the seconds without output, and the seconds after which the process is ended."""
        test = self._running()
        limit_s = self._job.test_silence_s.get(test or "", self._job.silence_s)
        return time.monotonic() - self._heard_at, limit_s

    def clear_away(self) -> None:
        """Kill the processes that the job left; harmless if none was started."""
        if self._child is not None:
            self._clear_away(self._child)
            self._context.events.on_full = None

    def _listen(self, wait_s: float) -> bool:
        arm_report = self._output.pump(wait_s)
        now = time.monotonic()
        if arm_report and now - self._polled_at < _SOURCES_S:
            return True
        self._polled_at = now
        return self._poll() or arm_report

    def _why_end(self) -> Optional[Sequence[str]]:
        now = time.monotonic()
        if self._context.events.disk_full:
            return "disk_full", "the disk is full"
        ending = self._context.heartbeat.ending()
        if ending is not None:
            return "stopped", ending.detail
        if now >= self._deadline:
            return "timeout", f"not done after {self._job.timeout_s:g} s{self._during()}"
        silent_s, limit_s = self.silence()
        if silent_s >= limit_s:
            return "hung", f"nothing heard for {limit_s:g} s{self._during()}"
        return None

    def _during(self) -> str:
        test = self._running()
        return f", in {test}" if test else ""

    def _natural(self, code: int) -> Ended:
        if code >= 0:
            return Ended(code, None, None, f"exit code {code}")
        starved = -code == signal.SIGKILL and oom_kills() > self._oom_kills
        why = ", because memory ran out" if starved else ""
        return Ended(None, -code, None, f"killed by {signal_name(-code)}{why}")

    def _end(self, child: subprocess.Popen[bytes], cause: str, detail: str) -> Ended:
        """End the process: with SIGABRT for its stacks if it hangs, else SIGTERM; then SIGKILL."""
        if cause == "hung":
            self._ask_where(child)
        grace_s = 0.0 if cause in ("hung", "disk_full") else self._context.plan.limits.kill_grace_s
        if self._context.heartbeat.hurried:
            grace_s = min(grace_s, _HURRIED_GRACE_S)
        if grace_s > 0:
            self._ask_to_go(child, grace_s)
        self._clear_away(child)
        code = child.returncode
        return Ended(
            code if code is not None and code >= 0 else None,
            -code if code is not None and code < 0 else None,
            cause,
            detail,
        )

    def _ask_where(self, child: subprocess.Popen[bytes]) -> None:
        """Send SIGABRT: faulthandler writes every thread's stack before the process ends."""
        processes.send({child.pid}, signal.SIGABRT)
        self._wait(child, _DUMP_S)

    def _ask_to_go(self, child: subprocess.Popen[bytes], grace_s: float) -> None:
        processes.send(self._all_of(child.pid), signal.SIGTERM)
        self._wait(child, grace_s)

    def _wait(self, child: subprocess.Popen[bytes], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while child.poll() is None and time.monotonic() < deadline:
            self._output.pump(0.05)

    def _all_of(self, leader: int) -> Set[int]:
        return self._own(leader)

    def _kill_now(self, leader: int) -> None:
        processes.send(self._all_of(leader), signal.SIGKILL)

    def _clear_away(self, child: subprocess.Popen[bytes]) -> None:
        """Kill the remaining processes, and read the rest of the output and the records."""
        if child.pid in self._cleared:
            return
        self._cleared.add(child.pid)
        left = self._left_behind(child) if child.poll() is not None else set()
        if left:
            number = f"{len(left)} process" + ("es" if len(left) > 1 else "")
            first = processes.command_line(min(left))
            self.left_behind = f"left {number} behind, which the agent ended: {first}"
            text = f"{self._job.id} {self.left_behind}"
            self._context.events.log("warning", text, self._job.id)
        stuck = self._kill(child)
        if stuck:
            text = f"processes {sorted(stuck)} do not end (stuck in the kernel?)"
            self._context.events.log("error", text, self._job.id)
        self._output.drain(_DRAIN_S)

    def _left_behind(self, child: subprocess.Popen[bytes]) -> Set[int]:
        """Return the processes that still run a moment after the main process ended."""
        deadline = time.monotonic() + self.afterglow_s
        while self._all_of(child.pid) and time.monotonic() < deadline:
            self._output.pump(0.05)
            processes.reap()
        return self._all_of(child.pid)

    def _kill(self, child: subprocess.Popen[bytes]) -> Set[int]:
        def left() -> Set[int]:
            child.poll()
            return self._all_of(child.pid)

        stuck = processes.kill_all(left)
        try:
            child.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return stuck | {child.pid}
        processes.release(child.pid)
        return stuck


def signal_name(number: int) -> str:
    """Return a signal's name, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _prefer_as_victim(pid: int) -> None:
    """Make the kernel's OOM killer prefer the job to the agent, which has to report it."""
    with contextlib.suppress(OSError):  # not Linux, or the process is already gone
        Path(f"/proc/{pid}/oom_score_adj").write_text(_OOM_SCORE)


def oom_kills() -> int:
    """Return the kernel's count of out-of-memory kills; 0 without a counter."""
    total = 0
    for path in _OOM_COUNTERS:
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return total
