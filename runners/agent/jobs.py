"""One job, from its folders to its ``finished`` event."""

from __future__ import annotations

import contextlib
import time
from typing import Callable, Dict, Mapping, Optional, Sequence, Set, Tuple

from . import job_env, processes, pytest_config
from .arms import Arm, Fresh, Heard, Resident
from .attempt_context import Crew, Desk
from .heartbeat import is_nearly_full
from .job_context import Bench
from .masking import JsonValue
from .paired import PairedRun
from .plan import Job
from .records import Records
from .suite import Suite, Verdict
from .supervise import Ended, Watch
from .tail import PipeTail, Tail

_FOR_TURNS = 0.9
"""Of a paired job's time; the rest is for the subject's arm to end in."""
_NAMED = 5
"""Files of the payload that are named where they were changed."""


class JobRun:
    """Runs one job and says how it ended."""

    def __init__(
        self,
        desk: Desk,
        crew: Crew,
        job: Job,
        *,
        baseline: Optional[Tuple[Desk, Crew]] = None,
    ) -> None:
        """Prepare.

        Args:
            desk: The attempt's shared things.
            crew: Who runs it.
            job: What is run.
            baseline: The other arm's, where the job is measured in turns with a baseline.
        """
        self._desk = desk
        self._crew = crew
        self._job = job
        self._baseline = baseline
        self._began_at = time.monotonic()
        self._announced = False

    def run(self, *, done: Sequence[str] = ()) -> Verdict:
        """Run the job.

        Args:
            done: Tests that an earlier agent of this attempt has already settled.

        Returns:
            How it ended; the same stands in its ``finished`` event.
        """
        verdict = self._refusal() or self._settled(self._work(done))
        self._finished(verdict)
        return verdict

    def _refusal(self) -> Optional[Verdict]:
        missing = [name for name in self._job.secrets if name not in self._crew.secrets]
        if missing:
            detail = f"secret {missing[0]} was not handed over"
            return Verdict(None, None, "config", detail, 0)
        if self._job.gpus > self._crew.gpus:
            detail = f"needs {self._job.gpus} gpus, found {self._crew.gpus}"
            return Verdict(None, None, "wrong_hardware", detail, 0)
        crews = (self._crew, self._baseline[1]) if self._baseline else (self._crew,)
        for crew in crews:
            for files in crew.installed:
                files.drop_strange_byte_code()
            problem = self._restore_payload(crew)
            if problem:
                return Verdict(None, None, "environment", problem, 0)
            changed = crew.refusal(tests=self._job.pytest is not None)
            if changed is not None:
                return Verdict(None, None, changed.reason, changed.detail, 0)
        return None

    def _restore_payload(self, crew: Crew) -> str:
        """Undo what earlier jobs did to it; say why that cannot be done, if it cannot."""
        try:
            restored = crew.payload.restore()
        except OSError as error:
            return f"what earlier jobs changed in the payload cannot be undone: {error}"
        if restored:
            more = f" and {len(restored) - _NAMED} more" if len(restored) > _NAMED else ""
            text = f"an earlier job changed {', '.join(restored[:_NAMED])}{more}: as shipped again"
            self._desk.events.log("warning", text, self._job.id)
        return ""

    def _work(self, done: Sequence[str]) -> Verdict:
        if self._baseline is not None and self._job.paired is not None:
            return self._paired(*self._baseline)
        with Bench(self._desk, self._crew, self._job) as bench:
            suite = self._job.pytest is not None
            verdict = self._suite(bench, done) if suite else self._command(bench)
            bench.checks.drain()
            return verdict

    def _paired(self, desk: Desk, crew: Crew) -> Verdict:
        pairing = self._job.paired
        assert pairing is not None
        heard, others = Heard(), Heard()
        own = Bench(self._desk, self._crew, self._job, hear=heard.hear)
        with own, Bench(desk, crew, self._job, hear=others.hear) as beside:
            arms = self._arm(own, heard), self._arm(beside, others)
            try:
                return PairedRun(*arms, pairing, left_s=self._left_s).run()
            finally:
                processes.kill_all(lambda: processes.of_attempt(desk.attempt.folder))

    def _arm(self, bench: Bench, heard: Heard) -> Arm:
        """Make an arm; the baseline's must be over before the job is.

        While both are resident, ending one must not end the other.
        """
        beside, resident = bool(bench.desk.attempt.arm), self._job.turns
        watch = self._watch(
            bench,
            poll=bench.checks.poll,
            running=lambda: None,
            share=_FOR_TURNS if beside else 1.0,
            own=processes.of_session if resident else None,
        )
        kind = Resident if resident else Fresh
        return kind(bench, heard, watch, _unannounced if beside else self._started)

    def _left_s(self) -> float:
        own = self._began_at + self._job.timeout_s * _FOR_TURNS - time.monotonic()
        return min(own, self._desk.pulse.left_s)

    def _suite(self, bench: Bench, done: Sequence[str]) -> Verdict:
        separate = self._crew.user.account is not None
        with contextlib.closing(
            PipeTail(bench.folder.records, mode=0o622 if separate else 0o600)
        ) as tail:
            return self._follow(bench, done, tail)

    def _follow(self, bench: Bench, done: Sequence[str], tail: Tail) -> Verdict:
        arguments = bench.job.pytest or ()
        records = Records(tail, self._desk.events, bench.job.id, arguments=arguments)
        watch = self._watch(
            bench,
            poll=lambda: bool(int(records.poll()) | int(bench.checks.poll())),
            running=records.running,
        )
        own = pytest_config.find(self._desk.attempt.payload)
        if own is None:
            bench.folder.empty_config.touch(mode=0o644)
        suite = Suite(
            self._desk,
            bench.job,
            records=records,
            output=bench.output,
            config=own or bench.folder.empty_config,
            skip_file=bench.folder.skip,
            skipped={*bench.job.skip, *done},
            crew=self._crew,
        )
        return suite.run(
            lambda argv, more: self._process(watch, argv, job_env.sheltered({**bench.env, **more}))
        )

    def _command(self, bench: Bench) -> Verdict:
        python = str(self._desk.attempt.python)
        argv = [word.replace("{python}", python) for word in bench.job.command or ()]
        watch = self._watch(bench, poll=bench.checks.poll, running=lambda: None)
        ended = self._process(watch, argv, bench.env)
        return Verdict(ended.exit_code, ended.signal, ended.cause, ended.detail, 0)

    def _watch(
        self,
        bench: Bench,
        *,
        poll: Callable[[], bool],
        running: Callable[[], Optional[str]],
        share: float = 1.0,
        own: Optional[Callable[[int], Set[int]]] = None,
    ) -> Watch:
        return Watch(
            bench.desk,
            bench.job,
            bench.output,
            deadline=self._began_at + bench.job.timeout_s * share,
            poll=poll,
            running=running,
            own=own,
        )

    def _process(self, watch: Watch, argv: Sequence[str], env: Mapping[str, str]) -> Ended:
        try:
            return watch.run(argv, env=env, account=self._crew.user.account, started=self._started)
        except OSError as error:
            return Ended(None, None, "start_failed", str(error))

    def _started(self, pid: int) -> None:
        if not self._announced:
            self._announced = True
            data: Dict[str, JsonValue] = {"name": "started", "kind": self._job.kind, "pid": pid}
            self._desk.events.emit("phase", self._job.id, data)

    def _settled(self, verdict: Verdict) -> Verdict:
        """Blame the disk for what a full disk has done."""
        full = self._desk.events.disk_full or verdict.cause == "disk_full"
        if verdict.cause is None and verdict.exit_code != 0:
            full = full or is_nearly_full(self._desk.attempt.folder)
        if not full:
            return verdict
        detail = f"the disk is full ({verdict.detail})"
        return Verdict(verdict.exit_code, verdict.signal, "disk_full", detail, verdict.restarts)

    def _finished(self, verdict: Verdict) -> None:
        data: Dict[str, JsonValue] = {
            "name": "finished",
            "exit_code": verdict.exit_code,
            "signal": verdict.signal,
            "cause": verdict.cause,
            "detail": verdict.detail,
            "duration_s": round(time.monotonic() - self._began_at, 3),
            "restarts": verdict.restarts,
        }
        self._desk.events.emit("phase", self._job.id, data)


def _unannounced(_: int) -> None:
    """The job has begun with the subject's arm; the baseline's is nobody's news."""
