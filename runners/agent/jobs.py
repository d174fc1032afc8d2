"""One job, from its folders to its ``finished`` event."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Mapping, Optional, Sequence

from . import job_env, pytest_config
from .checks import Checks
from .desk import Crew, Desk
from .layout import JobFolder
from .masking import JsonValue
from .output import JobOutput, Sink
from .pack import output_name
from .plan import Job
from .pulse import free_bytes
from .records import Records
from .separation import give
from .suite import PLUGIN_DISK_FULL, Suite, Verdict
from .supervise import Ended, Watch
from .tail import Tail

_FULL_BELOW_BYTES = 1024 * 1024
_LONGEST_TMP = 60
"""Longer paths leave no room for the 108 bytes of a socket's name, which multiprocessing needs."""


@dataclass(frozen=True)
class Bench:
    """What one job works with."""

    job: Job
    folder: JobFolder
    output: JobOutput
    checks: Checks
    env: Mapping[str, str]


class JobRun:
    """Runs one job and says how it ended."""

    def __init__(self, desk: Desk, crew: Crew, job: Job) -> None:
        self._desk = desk
        self._crew = crew
        self._job = job
        self._folder = desk.attempt.job(job.id)
        self._began_at = time.monotonic()
        self._announced = False

    def run(self, *, done: Sequence[str] = ()) -> Verdict:
        """Run the job.

        Args:
            done: Tests that an earlier agent of this attempt has already settled.

        Returns:
            How it ended; the same stands in its ``finished`` event.
        """
        verdict = self._refusal() or self._work(done)
        self._lock_away()
        self._finished(verdict)
        return verdict

    def _refusal(self) -> Optional[Verdict]:
        missing = [name for name in self._job.secrets if name not in self._crew.secrets]
        if missing:
            detail = f"secret {missing[0]} was not handed over"
            return Verdict(None, None, "start_failed", detail, 0)
        if self._job.gpus > self._crew.gpus:
            detail = f"needs {self._job.gpus} gpus, found {self._crew.gpus}"
            return Verdict(None, None, "start_failed", detail, 0)
        return None

    def _work(self, done: Sequence[str]) -> Verdict:
        self._make_folders()
        own = Sink(self._desk.attempt.artifacts / output_name(self._job.id), self._desk.events)
        output = JobOutput(
            self._job.id,
            log=self._desk.log,
            own=own,
            limit_bytes=self._desk.plan.limits.log_bytes,
            masker=self._desk.masker,
            on_cut=lambda text: self._desk.events.log("warning", text, self._job.id),
        )
        output.title(f"{self._job.id} ({self._job.kind})")
        checks = Checks(Tail(self._folder.events), self._desk.events, self._job.id)
        tmp = self._tmp()
        try:
            bench = Bench(self._job, self._folder, output, checks, self._environment(tmp))
            verdict = self._settled(self._suite(bench, done) if self._job.pytest is not None
                                    else self._command(bench))  # fmt: skip
            checks.drain()
            return verdict
        finally:
            output.finish()
            own.close()
            self._clear_tmp(tmp)

    def _suite(self, bench: Bench, done: Sequence[str]) -> Verdict:
        records = Records(Tail(bench.folder.records), self._desk.events, bench.job.id)
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
        )
        return suite.run(lambda argv, more: self._process(watch, argv, {**bench.env, **more}))

    def _command(self, bench: Bench) -> Verdict:
        python = str(self._desk.attempt.python)
        argv = [word.replace("{python}", python) for word in bench.job.command or ()]
        watch = self._watch(bench, poll=bench.checks.poll, running=lambda: None)
        ended = self._process(watch, argv, bench.env)
        return Verdict(ended.exit_code, ended.signal, ended.cause, ended.detail, 0)

    def _watch(
        self, bench: Bench, *, poll: Callable[[], bool], running: Callable[[], Optional[str]]
    ) -> Watch:
        return Watch(
            self._desk,
            bench.job,
            bench.output,
            deadline=self._began_at + bench.job.timeout_s,
            poll=poll,
            running=running,
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
        full = self._desk.events.disk_full or verdict.exit_code == PLUGIN_DISK_FULL
        if verdict.cause is None and verdict.exit_code != 0:
            full = full or free_bytes(self._desk.attempt.folder) < _FULL_BELOW_BYTES
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

    def _make_folders(self) -> None:
        shutil.rmtree(self._folder.folder, ignore_errors=True)
        for folder in (self._folder.artifacts, self._folder.tmp):
            folder.mkdir(parents=True, mode=0o755)
        self._folder.given.mkdir(parents=True, exist_ok=True, mode=0o755)
        account = self._crew.user.account
        if account is not None:
            give(self._folder.folder, account[0], account[1])

    def _lock_away(self) -> None:
        """Shut the job's folder: later jobs are the same user, and what it left is evidence."""
        if self._crew.user.account is None or not self._folder.folder.is_dir():
            return
        os.chown(self._folder.folder, os.geteuid(), os.getegid(), follow_symlinks=False)
        self._folder.folder.chmod(0o700)

    def _environment(self, tmp: Path) -> Mapping[str, str]:
        return job_env.for_job(
            self._crew.variables,
            job=self._job,
            attempt=self._desk.attempt,
            secrets=self._crew.secrets,
            tmp=str(tmp),
        )

    def _tmp(self) -> Path:
        """Return the job's temporary folder, by a short name where its own is too long."""
        own = self._folder.tmp
        if len(str(own)) <= _LONGEST_TMP:
            return own
        short = Path(self._folder.short_tmp)
        try:
            if short.is_symlink() and short.readlink() == own:
                return short
            short.symlink_to(own)
        except OSError:
            return own
        return short

    def _clear_tmp(self, tmp: Path) -> None:
        if tmp != self._folder.tmp:
            tmp.unlink(missing_ok=True)
        shutil.rmtree(self._folder.tmp, ignore_errors=True)
