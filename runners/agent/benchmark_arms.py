"""Arms of a paired benchmark: the process of an arm works during its turns, and waits otherwise."""

from __future__ import annotations

import contextlib
import os
from typing import Callable, Dict, List, Optional, Protocol

from .event_lines import READY
from .events import Data
from .job_context import JobContext
from .job_env import own_caches
from .supervise import Ended, Watch

TURNS = "SEATRIAL_TURNS"
"""Environment variable with the path that a resident arm reads its turns from."""

_LOOK_S = 0.01
"""Seconds between two checks of the process: short turns need a short interval."""
_WORSE = ("passed", "skipped", "failed")


class ArmEnded(Exception):  # noqa: N818 - a benchmark that ends is no error of the agent's
    """The arm's process has ended, or was ended, before all turns were taken."""

    def __init__(self, arm: "Arm", ended: Ended) -> None:
        super().__init__(ended.detail)
        self.arm = arm
        self.ended = ended


class ArmReport:
    """Events of one arm: the metrics of the current turn, and the worst outcome of every check."""

    def __init__(self) -> None:
        self.ready = False
        self.over: Optional[int] = None
        self.degraded: Optional[Data] = None
        self.checks: Dict[str, Data] = {}
        self._metrics: List[Data] = []

    def hear(self, kind: str, data: Data) -> None:
        """Store one event of the arm: a metric, a check, or the end of a turn."""
        if kind == "metric":
            self._metrics.append(data)
        elif kind == "turn":
            said = data["turn"]
            self.ready = self.ready or said == READY
            self.over = said if isinstance(said, int) else self.over
        elif "degraded" in data:
            self.degraded = self.degraded or data
        else:
            self._check(data)

    def take(self) -> List[Data]:
        """Return the metrics that were received since the last call."""
        taken, self._metrics = self._metrics, []
        return taken

    @property
    def failed(self) -> List[str]:
        """The names of the checks that failed in any turn."""
        return [name for name, data in self.checks.items() if data["outcome"] == "failed"]

    def _check(self, data: Data) -> None:
        name = str(data["check"])
        before = self.checks.get(name)
        rank = _WORSE.index
        if before is None or rank(str(data["outcome"])) >= rank(str(before["outcome"])):
            self.checks[name] = data


class Arm(Protocol):
    """The subject or the baseline of a paired benchmark; subclasses run its turns."""

    job_context: JobContext
    arm_report: ArmReport

    lasts: bool
    """Whether one process runs more than one turn."""

    def begin(self) -> None:
        """Start in a new process, after ending the previous one. Raises ArmEnded."""

    def turn(self, number: int) -> List[Data]:
        """Run one turn and return its metrics. Raises ArmEnded."""

    def finish(self) -> Ended:
        """End the arm's process; return how the process ended."""

    def close(self) -> None:
        """Remove the arm's process and its files."""


Start = Callable[[int], None]


class ProcessPerTurn:
    """Runs each turn in a new process, for benchmarks without support for turns."""

    lasts = False

    def __init__(
        self, job_context: JobContext, arm_report: ArmReport, watch: Watch, started: Start
    ) -> None:
        self.job_context = job_context
        self.arm_report = arm_report
        self._watch = watch
        self._started = started
        self._ended = Ended(0, None, None, "no turn was taken")

    def begin(self) -> None:
        """Do nothing: the first turn starts the first process."""

    def turn(self, number: int) -> List[Data]:
        """Run the command once. Raises ArmEnded."""
        try:
            self._ended = self._watch.run(
                _argv(self.job_context),
                env=_env(self.job_context),
                account=self.job_context.runner.user.account,
                started=self._started,
            )
        except OSError as error:
            raise ArmEnded(self, Ended(None, None, "start_failed", str(error))) from error
        _hear_out(self.job_context)
        if self._ended.exit_code != 0 or self._ended.cause is not None:
            raise ArmEnded(self, self._ended)
        return self.arm_report.take()

    def finish(self) -> Ended:
        """Return how the arm's last process ended."""
        return self._ended

    def close(self) -> None:
        """Do nothing: each process was removed after its turn."""


class Resident:
    """A process that stays for many turns; a named pipe starts each turn."""

    lasts = True

    def __init__(
        self, job_context: JobContext, arm_report: ArmReport, watch: Watch, started: Start
    ) -> None:
        self.job_context = job_context
        self.arm_report = arm_report
        self._watch = watch
        self._started = started
        self._pipe: Optional[int] = None
        self._ended: Optional[Ended] = None

    def begin(self) -> None:
        """Start the process, and wait until it is ready for its first turn. Raises ArmEnded."""
        self._let_go()
        path = self.job_context.folder.turns
        try:
            path.unlink(missing_ok=True)
            os.mkfifo(path)
            path.chmod(0o644)
            # Read and write: then a reader may come and go, and nothing here ever blocks.
            self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self._watch.begin(
                _argv(self.job_context),
                env={**_env(self.job_context), TURNS: str(path)},
                account=self.job_context.runner.user.account,
                started=self._started,
            )
        except OSError as error:
            raise ArmEnded(self, Ended(None, None, "start_failed", str(error))) from error
        self._until(lambda: self.arm_report.ready)

    def turn(self, number: int) -> List[Data]:
        """Start a turn, wait for its end, and return its metrics."""
        self._wake()
        self._say(str(number))
        self._until(lambda: self.arm_report.over == number)
        return self.arm_report.take()

    def finish(self) -> Ended:
        """Request the end of the process, and wait for the end."""
        self._say("end")
        ended = self._look(at_rest=True)
        while ended is None:
            ended = self._look()
        return ended

    def close(self) -> None:
        """Kill the process."""
        self._watch.clear_away()
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def _let_go(self) -> None:
        """End the previous process, if any. Raises ArmEnded if the process failed."""
        if self._pipe is None:
            return
        ended = self.finish()
        if ended.exit_code != 0 or ended.cause is not None:
            raise ArmEnded(self, ended)
        self.close()
        self._ended = None
        self.arm_report.ready = False

    def _wake(self) -> None:
        """Restart the measurement of silence: a process that waits for its turn writes nothing."""
        ended = self._look(at_rest=True)
        if ended is not None:
            raise ArmEnded(self, ended)

    def _until(self, true: Callable[[], bool]) -> None:
        while True:
            ended = self._look()
            if true():
                return
            if ended is not None:
                raise ArmEnded(self, ended)

    def _look(self, *, at_rest: bool = False) -> Optional[Ended]:
        """Return how the process has ended, or None while it runs; the first result is kept."""
        if self._ended is None:
            self._ended = self._watch.look(0.0 if at_rest else _LOOK_S, at_rest=at_rest)
            if self._ended is not None:
                _hear_out(self.job_context)
            self.job_context.context.heartbeat.beat(self.job_context.job.id)
        return self._ended

    def _say(self, word: str) -> None:
        if self._pipe is not None:
            with contextlib.suppress(BlockingIOError):  # the pipe is full of unread turns
                os.write(self._pipe, f"{word}\n".encode("ascii"))


def _argv(job_context: JobContext) -> List[str]:
    python = str(job_context.context.attempt.python)
    return [word.replace("{python}", python) for word in job_context.job.command or ()]


def _env(job_context: JobContext) -> Dict[str, str]:
    given = job_context.env
    return {**given, **own_caches(job_context.folder.caches, given)}


def _hear_out(job_context: JobContext) -> None:
    """Read all events that a process wrote before it ended."""
    while job_context.checks.poll():
        continue
