"""The overlay: a venv that sees the chosen interpreter's packages and adds what is missing."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Sequence, Set, Tuple

from . import bounded_process, interpreters, processes
from .failures import EnvironmentFailed
from .layout import Attempt
from .masking import JsonValue
from .plan import Plan

_VENV_TIMEOUT_S = 120.0
_INSTALL_TIMEOUT_S = 7_200.0
_SAID_CHARS = 4_000


class Overlay:
    """Builds the environment of one attempt."""

    def __init__(
        self,
        attempt: Attempt,
        plan: Plan,
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
        """Make the venv, show it the interpreter's packages, install what the plan names.

        Raises:
            EnvironmentFailed: the text ends with what the failing tool said.
        """
        chosen = self._chosen()
        shutil.rmtree(self._attempt.venv, ignore_errors=True)
        answer = self._run(
            (self._plan.python, "-E", "-s", "-m", "venv", "--without-pip", self._attempt.venv),
            timeout_s=_VENV_TIMEOUT_S,
        )
        if not answer.ok:
            raise EnvironmentFailed(f"{self._plan.python} cannot make a venv: {_said(answer)}")
        self._show_packages(chosen)
        made = self._interpreters()
        self._install(chosen)
        changed = sorted({name for name, _ in made ^ self._interpreters()})
        if changed:
            text = f"what was installed replaced {', '.join(changed)} of the environment"
            raise EnvironmentFailed(f"{text}: nothing that ran with it would count")

    def _interpreters(self) -> Set[Tuple[str, str]]:
        """Return the interpreter's names and settings, each with what it is."""
        venv = self._attempt.venv
        found = [*venv.glob("bin/python*"), *venv.glob("pyvenv.cfg")]
        return {
            (
                path.name,
                str(path.readlink()) if path.is_symlink() else path.read_text("utf-8", "replace"),
            )
            for path in found
        }

    def _chosen(self) -> Mapping[str, JsonValue]:
        found = interpreters.ask(self._plan.python)
        if found["error"] is not None:
            raise EnvironmentFailed(f"{self._plan.python} is no usable Python: {found['error']}")
        return found

    def _show_packages(self, chosen: Mapping[str, JsonValue]) -> None:
        paths = chosen["site_paths"]
        assert isinstance(paths, (list, tuple))
        if not paths:
            return
        calls = "; ".join(f"site.addsitedir({str(path)!r})" for path in paths)
        for folder in self._attempt.venv.glob("lib/python3*/site-packages"):
            (folder / "seatrial_overlay.pth").write_text(f"import site; {calls}\n")

    def _install(self, chosen: Mapping[str, JsonValue]) -> None:
        environment, subject = self._plan.environment, self._plan.subject
        wanted = list(environment.requirements)
        wanted += [subject.requirement] if subject else []
        if not wanted:
            return
        pip = self._pip(chosen)
        constraints = self._attempt.own / "constraints.txt"
        constraints.write_text("".join(f"{line}\n" for line in environment.constraints))
        self._pip_install(pip, ["-c", str(constraints), *wanted])
        if subject and not self._holds(subject.distribution):
            # Again and alone: pip takes a copy that the image already has for the one asked for.
            self._pip_install(pip, ["--force-reinstall", "--no-deps", subject.requirement])

    def _pip(self, chosen: Mapping[str, JsonValue]) -> Tuple[str, ...]:
        python = str(self._attempt.python)
        if chosen["pip"] is not None:
            return (python, "-m", "pip")
        shipped = self._shipped("pip-*.whl")
        found = shipped[-1] if shipped else interpreters.bundled_pip(self._plan.python)
        if found is None:
            raise EnvironmentFailed(
                f"{self._plan.python} has no pip and none was shipped, so nothing can be installed;"
                " choose another interpreter or install pip on the machine"
            )
        return (python, f"{found}/pip")

    def _holds(self, distribution: str) -> bool:
        """Say whether the overlay itself, not the interpreter under it, has a distribution."""
        wanted = _normal(distribution)
        infos = self._attempt.venv.glob("lib/python3*/site-packages/*.dist-info")
        return any(_normal(info.name.partition("-")[0]) == wanted for info in infos)

    def _shipped(self, pattern: str) -> List[Path]:
        if self._plan.wheels is None:
            return []
        return sorted(self._attempt.wheelhouse(self._plan.wheels).glob(pattern))

    def _pip_install(self, pip: Sequence[str], what: Sequence[str]) -> None:
        """Install from what was shipped; from an index only where the plan allows it."""
        quiet = ("--disable-pip-version-check", "--no-warn-script-location")
        common = ("install", "--no-input", *quiet)
        said = "nothing was shipped and the environment allows no index"
        if self._plan.wheels is not None:
            shipped = str(self._attempt.wheelhouse(self._plan.wheels))
            offline = ("--isolated", *common, "--no-index", "--find-links", shipped)
            answer = self._run((*pip, *offline, *what), timeout_s=_INSTALL_TIMEOUT_S)
            if answer.ok:
                return
            said = _said(answer)
        if self._plan.environment.index:
            found = self._wheelhouse_links()
            answer = self._run((*pip, *common, *found, *what), timeout_s=_INSTALL_TIMEOUT_S)
            if answer.ok:
                return
            said = _said(answer)
        raise EnvironmentFailed(f"packages cannot be installed ({' '.join(what)}): {said}")

    def _wheelhouse_links(self) -> Tuple[str, ...]:
        if self._plan.wheels is None:
            return ()
        return ("--find-links", str(self._attempt.wheelhouse(self._plan.wheels)))

    def _run(self, argv: Sequence[object], *, timeout_s: float) -> bounded_process.Answer:
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
        """Give pip its own variables back: the machine's index may be named there."""
        own = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        return {**self._variables, **own}


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "_", distribution).lower()


def _said(answer: bounded_process.Answer) -> str:
    if answer.timed_out:
        return "it took too long"
    lines = [line for line in answer.text.splitlines() if line.startswith("ERROR")]
    said = "\n".join(lines) or answer.text.strip() or f"exit code {answer.exit_code}"
    return said[-_SAID_CHARS:]
