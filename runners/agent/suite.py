"""Runs a pytest suite in as many processes as necessary: a crash fails only one test."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Pattern, Sequence, Set, Tuple

from .attempt_context import AttemptContext, JobRunner
from .heartbeat import is_nearly_full
from .job_output import CapturedOutput, JobOutput, Section
from .layout import on_path
from .plan import PlanJob
from .pytest_records import RecordsRefusal, SuiteRecords
from .supervise import Ended


@lru_cache(maxsize=None)
def digests_at_start() -> Dict[str, str]:
    """Return name and sha256 of each recorder file; called before code of the payload runs."""
    return _digests()


def changed() -> Optional[str]:
    """Return the name of a recorder file that changed since the attempt began, or None."""
    now = _digests()
    return next((name for name, was in digests_at_start().items() if now.get(name) != was), None)


def _digests() -> Dict[str, str]:
    files = sorted(on_path().glob("*.py"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def idle_timeout_advice(job: PlanJob, test: str) -> str:
    """Return advice on raising a job's limit of time without output, with the present limit."""
    source = "durations" if test in job.test_silence_s else job.silence_source
    now = f"{job.test_silence_s.get(test, job.silence_s) / 60:g} now"
    name = f"idle_timeout_minutes of job {job.id}"
    return {
        "matrix": f"raise {name} in the matrix ({now})",
        "payload": f"raise {name} in payload.toml ({now})",
        "durations": f"set {name} ({now}: twice what earlier runs took)",
        "default": f"set {name} (by default {now})",
    }[source]


_ANY = re.compile("")
_TABLE = re.compile(r"^\s*\[\s*tool\s*\.\s*pytest\s*(\.\s*ini_options\s*)?\]", re.MULTILINE)
_CANDIDATES: Tuple[Tuple[str, Pattern[str]], ...] = (
    ("pytest.toml", _ANY),
    (".pytest.toml", _ANY),
    ("pytest.ini", _ANY),
    (".pytest.ini", _ANY),
    ("pyproject.toml", _TABLE),
    ("tox.ini", re.compile(r"^\[pytest\]", re.MULTILINE)),
    ("setup.cfg", re.compile(r"^\[tool:pytest\]", re.MULTILINE)),
)


_WITH_VALUE = frozenset(
    ("-k", "-m", "-p", "-n", "-o", "-W", "--ignore", "--ignore-glob", "--deselect")
)
"""Options of pytest whose value can look like a path."""


def config_file(root: Path, arguments: Sequence[str] = ()) -> Optional[Path]:
    """Return the payload's own pytest configuration, as pytest finds it without the agent.

    It looks in the deepest folder that all arguments share, then in those above it.
    """
    values = {place + 1 for place, word in enumerate(arguments) if word in _WITH_VALUE}
    words = (word for place, word in enumerate(arguments) if place not in values)
    named = [root / word.partition("::")[0] for word in words if not word.startswith("-")]
    asked = [os.path.normpath(path) for path in named if path.exists()]
    shared = Path(os.path.commonpath(asked)) if asked else root
    folder = shared if shared.is_dir() else shared.parent
    while folder == root or root in folder.parents:
        for name, needed in _CANDIDATES:
            path = folder / name
            if path.is_file() and needed.search(path.read_text("utf-8", errors="replace")):
                return path
        folder = folder.parent
    return None


_PLUGIN_DISK_FULL = 74
"""Exit code of a pytest whose results no longer fit on the disk; tests may use it as well."""
_PLUGIN_UNHEARD = 77
"""Exit code of a pytest whose pipe for results was closed."""
_CLOSED = "its results could not be written: a test must not close files that it did not open"
_PLUGIN = "seatrial_pytest"
_START = "seatrial_start.py"
_TESTS_FAILED = 1
_USAGE_ERROR = 4
_WELL = (0, 5)
"""Exit codes of pytest with which a suite may pass."""
_LAST_WORDS_BYTES = 16_384
_ERROR = "ERROR: "
_ERROR_CHARACTERS = 300

Process = Callable[[Sequence[str], Mapping[str, str]], Ended]


@dataclass(frozen=True)
class JobExit(Ended):
    """The end of a job: facts without evaluation."""

    restarts: int


@dataclass(frozen=True)
class LastOutput:
    """The output of an ended process of a suite."""

    words: str
    """The end of the shown output."""
    sections: Sequence[Section]
    """Output that pytest had captured and not shown."""


@dataclass(frozen=True)
class ProcessEnd:
    """The end of one process of a suite, and whether a test caused it."""

    verdict: JobExit
    again: bool = False


class Suite:
    """Runs pytest, and runs the remaining tests again after a test that crashed its process."""

    def __init__(
        self,
        context: AttemptContext,
        job: PlanJob,
        *,
        records: SuiteRecords,
        output: JobOutput,
        config: Path,
        skip_file: Path,
        skipped: Set[str],
        runner: JobRunner,
    ) -> None:
        """Prepare a suite.

        Args:
            context: The shared state of the attempt.
            job: A job with pytest arguments.
            records: Reader of the plugin's records.
            output: The job's output.
            config: pytest's configuration file.
            skip_file: File with the tests that are not run again.
            skipped: Tests with a final result from an earlier attempt or agent.
            runner: The user and environment that the job runs with.
        """
        self._context = context
        self._job = job
        self._records = records
        self._output = output
        self._config = config
        self._skip_file = skip_file
        self._only_file = skip_file.with_name("only.json")
        self._skipped = skipped
        self._runner = runner
        self._job_folder = context.attempt.job(job.id)
        self._captured = CapturedOutput(self._job_folder.captured, runner.user.account)

    def run(self, process: Process) -> JobExit:
        """Run the suite to its end."""
        restarts = 0
        while True:
            step = self._once(process)
            verdict = replace(step.verdict, restarts=restarts)
            if not step.again:
                return verdict
            left = self._records.left(self._skipped)
            if not left:
                # The result of the last test explains this end of the process: the suite ended
                # like one with a failing test.
                return replace(verdict, exit_code=_TESTS_FAILED, signal=None, cause=None)
            if restarts >= self._context.plan.limits.restarts:
                unrun = "1 test was" if len(left) == 1 else f"{len(left)} tests were"
                detail = f"{verdict.detail}; given up after {restarts} restarts"
                return replace(verdict, detail=f"{detail}, {unrun} not run")
            restarts += 1
            text = f"{verdict.detail}; a fresh process runs what is left ({len(left)} of the tests)"
            self._output.banner(text)
            self._context.events.log("warning", text, self._job.id)

    def _once(self, process: Process) -> ProcessEnd:
        self._records.begin_process()
        self._captured.begin_process()
        self._skip_file.write_text(json.dumps(sorted(self._skipped | self._records.done)))
        self._skip_file.chmod(0o644)
        self._only_file.write_text(json.dumps(sorted(self._job.only)))
        self._only_file.chmod(0o644)
        ended = process(self._argv(), self._variables())
        self._records.drain()
        words = self._last_words()
        sections = self._captured.drain(self._output, self._context.plan.limits.text_bytes)
        return self._step_after(ended, LastOutput(words, sections))

    def _step_after(self, ended: Ended, last: LastOutput) -> ProcessEnd:
        verdict = JobExit(ended.exit_code, ended.signal, ended.cause, ended.detail, 0)
        refused = (
            self._records.refusal()
            or _changed()
            or self._runner.refusal(tests=True)
            or self._left_early(ended)
        )
        if refused is not None and ended.cause is None:
            return ProcessEnd(replace(verdict, cause=refused.reason, detail=refused.detail))
        test = self._records.running()
        if ended.cause == "hung":
            return self._hung(verdict, test, last)
        if ended.cause is not None:
            return ProcessEnd(verdict)
        if ended.exit_code == _PLUGIN_DISK_FULL and is_nearly_full(self._context.attempt.folder):
            return ProcessEnd(replace(verdict, cause="disk_full"))
        why = _why(ended.exit_code, last.words)
        if why:
            verdict = replace(verdict, detail=f"{verdict.detail}: {why}")
        if self._records.poisoned:
            poisoned = "a test left the device unusable"
            return ProcessEnd(replace(verdict, cause="crashed", detail=poisoned), again=True)
        if test is None or self._records.session_finished:
            return ProcessEnd(verdict)
        return self._crashed(verdict, test, last)

    def _left_early(self, ended: Ended) -> Optional[RecordsRefusal]:
        """Return a refusal if pytest ended successfully without the end of its session.

        `os._exit(0)` in a test does that.
        """
        well = ended.exit_code in _WELL and self._records.manifest is not None
        if not well or self._records.session_finished or self._records.running() is not None:
            return None
        text = f"pytest ended with exit code {ended.exit_code} before its session had ended"
        return RecordsRefusal("forged_records", f"{text}. Fix: let no test or hook end the process")

    def _hung(self, verdict: JobExit, test: Optional[str], last: LastOutput) -> ProcessEnd:
        if test is None:
            return ProcessEnd(replace(verdict, detail=f"{verdict.detail}, outside any test"))
        fix = f"Fix: where that is usual, {idle_timeout_advice(self._job, test)}"
        text = f"{verdict.detail}; it was ended\n{fix}\n\n{last.words}"
        self._lost(test, "hung", verdict, text, last)
        return ProcessEnd(verdict, again=True)

    def _crashed(self, verdict: JobExit, test: str, last: LastOutput) -> ProcessEnd:
        text = f"the interpreter ended while this test ran: {verdict.detail}"
        self._lost(test, "crashed", verdict, f"{text}\n\n{last.words}", last)
        detail = f"the interpreter ended in {test}: {verdict.detail}"
        return ProcessEnd(replace(verdict, cause="crashed", detail=detail), again=True)

    def _lost(self, test: str, cause: str, verdict: JobExit, text: str, last: LastOutput) -> None:
        self._records.lost(
            test, cause=cause, number=verdict.signal, text=text, sections=last.sections
        )

    def _last_words(self) -> str:
        said = self._output.last(_LAST_WORDS_BYTES)
        return f"last output:\n{said}" if said.strip() else "pytest had shown nothing"

    def _argv(self) -> List[str]:
        root = self._context.attempt.payload
        return [
            str(self._context.attempt.python), str(on_path() / _START), "pytest", "-p", _PLUGIN,
            f"--rootdir={root}", f"--confcutdir={root}", "-c", str(self._config),
            *(self._job.pytest or ()),
        ]  # fmt: skip

    def _byte_code(self) -> str:
        """Return the digest of the subject's byte code if it was installed for this attempt.

        Any user may have written to another environment.
        """
        subject, venv = self._context.plan.subject, self._context.attempt.venv
        for each in self._runner.installed:
            if subject is not None and each.name == subject.distribution:
                return each.byte_code_digest() if venv in each.home.parents else ""
        return ""

    def _variables(self) -> Dict[str, str]:
        subject = self._context.plan.subject
        return {
            "SEATRIAL_RECORDS": str(self._job_folder.records),
            "SEATRIAL_SUBJECT": subject.distribution if subject else "",
            "SEATRIAL_HOMES": json.dumps(
                {one.name: str(one.home) for one in self._runner.installed}
            ),
            "SEATRIAL_BYTE_CODE": self._byte_code(),
            "SEATRIAL_SKIP": str(self._skip_file),
            "SEATRIAL_CAPTURED": str(self._job_folder.captured),
            "SEATRIAL_ONLY": str(self._only_file),
            "SEATRIAL_TEXT_BYTES": str(self._context.plan.limits.text_bytes),
        }


def _why(code: Optional[int], words: str) -> str:
    """Return pytest's last error message about arguments or configuration; empty without one.

    If the recorder's pipe was closed, return a message about that.
    """
    if code == _PLUGIN_UNHEARD:
        return _CLOSED
    said = [line[len(_ERROR) :].strip() for line in words.splitlines() if line.startswith(_ERROR)]
    return said[-1][:_ERROR_CHARACTERS] if said and code == _USAGE_ERROR else ""


def _changed() -> Optional[RecordsRefusal]:
    """Return a refusal if a recorder file was overwritten, which a separate user could not do."""
    name = changed()
    if name is None:
        return None
    text = f"{name} was changed while tests ran: what it recorded does not count"
    return RecordsRefusal("wrong_pytest", f"{text}. Fix: let nothing of the payload write there")
