"""Proof that the jobs will import what was installed for them."""

from __future__ import annotations

from typing import Iterable, Optional

from . import interpreters
from .environment_facts import Asker
from .failures import WrongSubject
from .installed import Files
from .layout import on_path
from .plan import Subject

_TIMEOUT_S = 300.0

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
    return ""

try:
    problem = shadowed(Installed(sys.argv[1]))
except Exception as error:
    problem = f"{type(error).__name__}: {error}"
"""


def prove_installed(subject: Subject, installed: Iterable[Files]) -> None:
    """Check that what was installed is the subject, whole.

    Raises:
        WrongSubject: it is not; the text says in what.
    """
    for files in installed:
        refused = files.refusal() if files.name == subject.distribution else None
        if refused is not None:
            raise WrongSubject(f"{subject.requirement} is not what was installed: {refused.detail}")


def prove(subject: Subject, asker: Asker) -> None:
    """Check that the subject's import resolves to its installed files.

    Raises:
        WrongSubject: it does not; the text says what would have been imported.
    """
    problem = _ask(subject, asker)
    if problem is not None:
        raise WrongSubject(f"{subject.requirement} is not what jobs would import: {problem}")


def _ask(subject: Subject, asker: Asker) -> Optional[str]:
    looks = (on_path() / "seatrial_origins.py").read_text(encoding="utf-8")
    script = interpreters.answering(looks + _PROOF, '{"problem": problem}')
    answer = asker.ask(script, subject.distribution, timeout_s=_TIMEOUT_S)
    found = interpreters.extract(answer.text) if answer.ok else None
    if found is None:
        return f"the check itself failed: {answer.text.strip()[-1_000:]}"
    problem = found["problem"]
    return None if problem is None else str(problem)
