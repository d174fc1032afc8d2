"""One side of an attempt: its payload, its environment, and the proof of its subject.

The subject's side is what every job runs on. The baseline's is made beside it, in folders of its
own, when the first paired benchmark needs it; what goes wrong there fails no job of the subject.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import (
    Callable,
    Collection,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from . import (
    bounded_process,
    environment_facts,
    installed_packages,
    interpreters,
    job_env,
    processes,
)
from .attempt_context import AttemptContext, JobRunner
from .attempt_errors import AttemptEnd, DiskFull, EnvironmentFailed, Stopped, WrongSubject
from .environment_facts import Asker
from .installed_packages import EnvironmentCopy, EnvironmentInventory, Files
from .job_user import give
from .layout import AttemptFolder, on_path
from .payload_copy import PayloadCopy
from .plan import AgentPlan, PlanSubject

_TIMEOUT_S = 300.0
_OVERLAY = "seatrial_overlay.pth"
"""File in the environment's site-packages. It adds the interpreter's own packages to the path, and
makes each process of a job without pytest report the origins of the subject's modules.
"""
_OWN_FILES = ("bin/python*", "pyvenv.cfg", f"lib/python3*/site-packages/{_OVERLAY}")
"""Packages that no other package may replace."""

# Runs like a job: the current folder and PYTHONPATH come first on sys.path, so that a source tree
# which would shadow the installed files is found out.
_PROOF = """
import importlib.util

def shadowed(found):
    for root in sorted(found.roots):
        spec = importlib.util.find_spec(root)
        places = list(spec.submodule_search_locations or [spec.origin]) if spec else []
        if not places:
            return f"{root} does not import"
        if found.path_of(str(spec.origin)) is None:
            return f"{root} is imported from {places[0]}, not from {found.home}{way(places[0])}"
    return None

def way(place):
    for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if entry and (place + os.sep).startswith(os.path.abspath(entry) + os.sep):
            return f"; PYTHONPATH = {entry!r} comes before it: take that out of payload.toml's env"
    source = os.path.relpath(place, os.getcwd())
    return "" if source.startswith(os.pardir) else f". Fix: {leave_out(source)}"

try:
    problem = shadowed(InstalledFiles(sys.argv[1]))
except Exception as error:
    problem = f"{type(error).__name__}: {error}"
"""


def prove_installed(subject: PlanSubject, installed: Iterable[Files]) -> None:
    """Check that the complete subject was installed.

    Raises:
        WrongSubject: it was not; the text names the difference.
    """
    for files in installed:
        refused = files.refusal() if files.name == subject.distribution else None
        if refused is not None:
            raise WrongSubject(f"{subject.requirement} is not what was installed: {refused.detail}")


def prove(subject: PlanSubject, asker: Asker) -> None:
    """Check that the subject's import resolves to its installed files.

    Raises:
        WrongSubject: it does not; the text names the file that would have been imported.
    """
    problem = _ask(subject, asker)
    if problem is not None:
        raise WrongSubject(f"{subject.requirement} is not what jobs would import: {problem}")


def _ask(subject: PlanSubject, asker: Asker) -> Optional[str]:
    script = interpreters.answering(interpreters.origins_program() + _PROOF, '{"problem": problem}')
    answer = asker.ask(script, subject.distribution, timeout_s=_TIMEOUT_S)
    found = interpreters.extract(answer.text) if answer.ok else None
    if found is None:
        return f"the check itself failed: {answer.text.strip()[-1_000:]}"
    problem = found["problem"]
    return None if problem is None else str(problem)


_PIP_ALONE = (
    "import os, runpy, sys; sys.prefix = sys.exec_prefix = sys.argv.pop(1); "
    "sys.path += sys.argv.pop(1).split(os.pathsep); "
    "runpy.run_module('pip', run_name='__main__', alter_sys=True)"
)
"""Runs pip for an environment without loading its packages, whose ``.pth`` files would run."""
_VENV_TIMEOUT_S = 120.0
_INSTALL_TIMEOUT_S = 7_200.0
_OUTPUT_CHARS = 4_000


class Overlay:
    """Builds the environment of one attempt."""

    def __init__(
        self,
        attempt: AttemptFolder,
        plan: AgentPlan,
        *,
        tick: Callable[[], None],
        sink: Callable[[bytes], None],
    ) -> None:
        self._attempt = attempt
        self._plan = plan
        self._tick = tick
        self._sink = sink
        environment = interpreters.quiet_environment()
        self._variables = {**environment, processes.MARK: str(attempt.folder)}

    def build(self) -> None:
        """Create the venv with the interpreter's packages, and install the plan's packages.

        Raises:
            EnvironmentFailed: the text ends with the output of the failing tool.
        """
        shutil.rmtree(self._attempt.venv, ignore_errors=True)
        made = self._make()
        self._write_overlay(made.site_paths)
        before = self._interpreters()
        self._install(made)
        changed = sorted({name for name, _ in before ^ self._interpreters()})
        if changed:
            text = f"what was installed replaced {', '.join(changed)} of the environment"
            raise EnvironmentFailed(f"{text}: nothing that ran with it would count")

    def _interpreters(self) -> Set[Tuple[str, str]]:
        """Return the environment's interpreter and settings files with link target or content."""
        venv = self._attempt.venv
        found = [path for pattern in _OWN_FILES for path in venv.glob(pattern)]
        return {
            (
                path.name,
                str(path.readlink()) if path.is_symlink() else path.read_text("utf-8", "replace"),
            )
            for path in found
        }

    def _make(self) -> interpreters.VirtualEnvironment:
        python, venv = self._plan.python, self._attempt.venv
        self._sink(f"$ {python} -m venv --without-pip {venv}\n".encode("utf-8", "replace"))
        try:
            return interpreters.make_venv(python, venv, self._quietly)
        except interpreters.VenvError as error:
            raise EnvironmentFailed(str(error)) from None

    def _quietly(self, argv: Sequence[str]) -> bounded_process.ProgramOutput:
        return bounded_process.run(
            argv,
            timeout_s=_VENV_TIMEOUT_S,
            env=self._variables,
            cwd=self._attempt.folder,
            tick=self._tick,
        )

    def _write_overlay(self, paths: Sequence[str]) -> None:
        calls = "".join(f"; site.addsitedir({path!a})" for path in paths)
        script = str(on_path() / "seatrial_modules.py")
        loader = "__import__('_frozen_importlib_external').SourceFileLoader"
        source = f"{loader}('seatrial_modules', {script!a}).get_data({script!a})"
        report = f"exec({source}, {{'__file__': {script!a}}})"
        overlay = f"import site{calls}\nimport os; {report}\n"
        for folder in self._attempt.venv.glob("lib/python3*/site-packages"):
            (folder / _OVERLAY).write_text(overlay)

    def _install(self, made: interpreters.VirtualEnvironment) -> None:
        environment, subject = self._plan.environment, self._plan.subject
        wanted = list(environment.requirements)
        wanted += [subject.requirement] if subject else []
        if not wanted:
            return
        python = str(self._attempt.python)
        shipped = () if made.has_pip else (self._pip_wheel(),)
        pip = (python, f"{shipped[0]}/pip") if shipped else (python, "-m", "pip")
        constraints = self._attempt.own / "constraints.txt"
        constraints.write_text("".join(f"{line}\n" for line in environment.constraints))
        self._pip_install(pip, ["-c", str(constraints), *wanted])
        if subject and not self._holds(subject.distribution):
            # Again and alone: pip takes a copy that the image already has for the one asked for.
            path = os.pathsep.join((*shipped, *made.site_paths))
            alone = (python, "-I", "-S", "-c", _PIP_ALONE, str(self._attempt.venv), path)
            self._pip_install(alone, ["--force-reinstall", "--no-deps", subject.requirement])

    def _pip_wheel(self) -> str:
        shipped = self._shipped("pip-*.whl")
        found = str(shipped[-1]) if shipped else interpreters.bundled_pip(self._plan.python)
        if found is None:
            raise EnvironmentFailed(
                f"{self._plan.python} has no pip and none was shipped, so nothing can be installed;"
                " choose another interpreter or install pip on the machine"
            )
        return found

    def _holds(self, distribution: str) -> bool:
        """Return whether a distribution is in the overlay itself, not in its interpreter."""
        wanted = _normal(distribution)
        infos = self._attempt.venv.glob("lib/python3*/site-packages/*.dist-info")
        return any(_normal(info.name.partition("-")[0]) == wanted for info in infos)

    def _shipped(self, pattern: str) -> List[Path]:
        if self._plan.wheels is None:
            return []
        return sorted(self._attempt.wheelhouse(self._plan.wheels).glob(pattern))

    def _pip_install(self, pip: Sequence[str], what: Sequence[str]) -> None:
        """Install from the shipped wheels; from an index only if the plan allows it."""
        quiet = ("--disable-pip-version-check", "--no-warn-script-location")
        # `installed_packages.take` compiles it, where nothing that was installed runs.
        common = ("install", "--no-input", "--no-compile", *quiet)
        said = "nothing was shipped and the environment allows no index"
        if self._plan.wheels is not None:
            shipped = str(self._attempt.wheelhouse(self._plan.wheels))
            offline = ("--isolated", *common, "--no-index", "--find-links", shipped)
            answer = self._run((*pip, *offline, *what), timeout_s=_INSTALL_TIMEOUT_S)
            if answer.ok:
                return
            said = _error_text(answer)
        if self._plan.environment.index:
            found = self._wheelhouse_links()
            answer = self._run((*pip, *common, *found, *what), timeout_s=_INSTALL_TIMEOUT_S)
            if answer.ok:
                return
            said = _error_text(answer)
        raise EnvironmentFailed(f"packages cannot be installed ({' '.join(what)}): {said}")

    def _wheelhouse_links(self) -> Tuple[str, ...]:
        if self._plan.wheels is None:
            return ()
        return ("--find-links", str(self._attempt.wheelhouse(self._plan.wheels)))

    def _run(self, argv: Sequence[object], *, timeout_s: float) -> bounded_process.ProgramOutput:
        words = [str(word) for word in argv]
        self._sink(f"$ {' '.join(words)}\n".encode("utf-8", "replace"))
        return bounded_process.run(
            words,
            timeout_s=timeout_s,
            env=self._index_variables() if "install" in words else self._variables,
            cwd=self._attempt.folder,
            tick=self._tick,
            sink=self._sink,
        )

    def _index_variables(self) -> Dict[str, str]:
        """Return the variables with pip's own, which may name the machine's index."""
        own = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        return {**self._variables, **own}


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "_", distribution).lower()


def _error_text(answer: bounded_process.ProgramOutput) -> str:
    if answer.timed_out:
        return "it took too long"
    lines = [line for line in answer.text.splitlines() if line.startswith("ERROR")]
    said = "\n".join(lines) or answer.text.strip() or f"exit code {answer.exit_code}"
    return said[-_OUTPUT_CHARS:]


BASELINE = "baseline"


def copy_payload(context: AttemptContext) -> None:
    """Create the side's copy of the payload.

    Raises:
        AttemptEnd: the payload is not on this machine, or cannot be copied.
    """
    attempt = context.attempt
    source = attempt.pristine(context.plan.payload)
    if not source.is_dir():
        raise AttemptEnd(f"payload {context.plan.payload} has not been unpacked on this machine")
    shutil.rmtree(attempt.payload, ignore_errors=True)
    try:
        shutil.copytree(source, attempt.payload, symlinks=True)
        for folder in (attempt.jobs, attempt.artifacts, attempt.given):
            folder.mkdir(exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise_if_full(context)
        raise AttemptEnd(f"the payload cannot be copied: {error}") from error


def payload_copy(context: AttemptContext, names: Collection[str]) -> PayloadCopy:
    """Return the side's payload copy, which is watched after the jobs' user became its owner.

    Args:
        context: The side.
        names: Those of the `EnvironmentInventory` of its environment.
    """
    pristine = context.attempt.pristine(context.plan.payload)
    return PayloadCopy(pristine, context.attempt.payload, names)


def build_overlay(context: AttemptContext) -> None:
    """Build the side's environment; the tools' output is in the log.

    Raises:
        EnvironmentFailed: it cannot be built.
    """
    stream = context.masker.stream()
    overlay = Overlay(
        context.attempt,
        context.plan,
        tick=context.heartbeat.check,
        sink=lambda data: context.log.write(stream.feed(data)),
    )
    try:
        with _environment_failures(context):
            overlay.build()
    finally:
        context.log.write(stream.finish())


def list_environment(
    context: AttemptContext, account: bounded_process.Account
) -> EnvironmentInventory:
    """List the files of the side's environment, as the jobs' user.

    Raises:
        EnvironmentFailed: it cannot be listed.
    """
    with _environment_failures(context):
        return installed_packages.take(
            context.attempt, context.plan.subject, account, context.heartbeat.check
        )


@contextmanager
def _environment_failures(context: AttemptContext) -> Iterator[None]:
    try:
        yield
    except (EnvironmentFailed, OSError) as error:
        raise_if_full(context)
        if isinstance(error, EnvironmentFailed):
            raise
        raise EnvironmentFailed(f"the environment cannot be made: {error}") from error


def prove_subject(context: AttemptContext, runner: JobRunner) -> None:
    """Prove that the subject is installed and imported, for each way in which jobs may import it.

    Raises:
        WrongSubject: another distribution is installed, or another module would be imported.
    """
    if context.plan.subject is None:
        return
    prove_installed(context.plan.subject, runner.installed)
    ways: Dict[Optional[str], Mapping[str, str]] = {}
    for job in context.plan.jobs:
        env = job_env.for_job(runner.variables, job=job, attempt=context.attempt, secrets={})
        ways.setdefault(env.get("PYTHONPATH"), env)
    for way in ways.values() if ways else (runner.variables,):
        asker = environment_facts.Asker(
            context.attempt, way, runner.user.account, context.heartbeat.check
        )
        prove(context.plan.subject, asker)


def raise_if_full(context: AttemptContext) -> None:
    """End the attempt if the disk is full.

    Raises:
        DiskFull: the disk is full.
    """
    if shutil.disk_usage(context.attempt.folder).free < 1024 * 1024:
        raise DiskFull("the disk is full: nothing could be prepared")


class BaselineSide:
    """The baseline, which is built at its first use."""

    def __init__(self, context: AttemptContext, runner: JobRunner) -> None:
        self._subject = context
        self._runner = runner
        self._tried = False
        self._context: Optional[AttemptContext] = None
        self._installed: Tuple[Files, ...] = ()
        self._payload: Optional[PayloadCopy] = None
        self._environment: Optional[EnvironmentCopy] = None

    def get(self) -> Optional[AttemptContext]:
        """Return the baseline's context, or None without one; the log has the reason.

        Raises:
            Stopped: a stop was requested.
            DiskFull: nothing more can be written.
        """
        if not self._tried:
            self._tried = True
            self._context = self._made()
        return self._context

    def runner(self, context: AttemptContext) -> JobRunner:
        """Return the runner of the baseline's turns: same user, the baseline's environment."""
        plan, user = context.plan, self._runner.user
        variables = job_env.common(
            context.attempt, name=plan.attempt, environment=plan.environment, user=user
        )
        return replace(
            self._runner,
            variables=variables,
            payload=self._payload or self._runner.payload,
            environment=self._environment or self._runner.environment,
            installed=self._installed,
        )

    def _made(self) -> Optional[AttemptContext]:
        asked = self._subject.plan.baseline
        if asked is None:
            return None
        problem = asked.refused
        if not problem:
            plan = replace(
                self._subject.plan,
                **{key: getattr(asked, key) for key in ("payload", "wheels", "environment")},
                subject=asked.subject,
                jobs=tuple(job for job in self._subject.plan.jobs if job.paired is not None),
            )
            attempt = self._subject.attempt._replace(arm=BASELINE)
            context = replace(self._subject, attempt=attempt, plan=plan)
            try:
                self._prepare(context)
            except (Stopped, DiskFull):
                raise
            except (AttemptEnd, OSError) as error:
                problem = error.detail if isinstance(error, AttemptEnd) else str(error)
            else:
                return context
        text = f"benchmarks run alone, because the baseline cannot be prepared: {problem}"
        self._subject.events.log("warning", text)
        return None

    def _prepare(self, context: AttemptContext) -> None:
        context.attempt.own.mkdir(exist_ok=True, mode=0o755)
        copy_payload(context)
        build_overlay(context)
        account = self._runner.user.account
        inventory = list_environment(context, account)
        self._installed = inventory.files
        if account is not None:
            give(context.attempt.payload, account[0], account[1])
        self._payload = payload_copy(context, inventory.names)
        self._environment = EnvironmentCopy(context.attempt.venv)
        prove_subject(context, self.runner(context))
