"""From what stands in the form to what is launched."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from orchestrator.application.context import Context
from orchestrator.application.launch_run import BUILTIN, LaunchOrder, check_order, find_payload
from orchestrator.application.ports.documents import Source
from orchestrator.domain.matrix import Matrix
from orchestrator.domain.problems import InvalidDocumentError, Problem
from orchestrator.domain.retests import TrialOrder

SOURCES = {
    "": "as the matrix says",
    "payload": "the payload itself",
    "package": "a package version",
    "wheel": "an uploaded wheel",
    "git": "a git revision, as an uploaded wheel",
}
MOST_CHARACTERS = 500_000
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?")
_MOST_RERUNS = 20
_MOST_HOLD = 1440
_MOST_HOURS = 8760


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a person wrote; every value is kept as it is."""

    name: str = "matrix"
    text: str = ""
    subject: str = ""
    version: str = ""
    source: str = ""
    package: str = ""
    wheel: str = ""
    url: str = ""
    rev: str = ""
    platforms: Sequence[str] = ()
    """Those that are chosen."""
    known: Sequence[str] = ()
    """Those that could be chosen when the form was made."""
    payload: str = ""
    hold_minutes: str = ""
    reruns: str = ""
    diagnose: bool = False
    reuse_hours: str = ""

    @property
    def fingerprint(self) -> str:
        """Of everything: what was planned is what is started."""
        canonical = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def about(self, matrix: Matrix) -> Form:
        """The same, knowing every platform of the matrix."""
        names = tuple(platform.id for platform in matrix.platforms)
        chosen = tuple(name for name in names if self.is_chosen(name))
        return replace(self, platforms=chosen, known=names)

    def is_chosen(self, platform: str) -> bool:
        """A platform that the form did not know of is chosen, as all are at first."""
        return platform in self.platforms or platform not in self.known


def order_of(context: Context, form: Form) -> tuple[LaunchOrder, Matrix]:
    """What is asked for, and its matrix.

    Raises InvalidDocumentError or PayloadMissingError.
    """
    matrix = context.documents.read_matrix(form.text, form.name)
    faults = list(_faults(form, matrix))
    if faults:
        raise InvalidDocumentError("the form", faults)
    order = LaunchOrder(
        matrix=_source(context, form, matrix),
        name=form.name,
        payload=form.payload or BUILTIN,
        subject_digest=form.wheel or None,
        hold_minutes=_number(form.hold_minutes) or 0.0,
        trials=_trials(form),
        reuse_max_age_s=_seconds(form.reuse_hours),
    )
    return replace(order, only=_only(context, order, form)), matrix


def _faults(form: Form, matrix: Matrix) -> list[Problem]:
    found = []
    if form.source and form.source not in SOURCES:
        found.append(Problem(("source",), f"{form.source!r} is none of {', '.join(SOURCES)}"))
    for name in ("payload", "wheel"):
        value = getattr(form, name)
        if value and not _DIGEST.fullmatch(value) and (name, value) != ("payload", BUILTIN):
            found.append(Problem((name,), "must be a sha256: 64 digits of 0-9 and a-f"))
    limits = {"hold_minutes": _MOST_HOLD, "reruns": _MOST_RERUNS, "reuse_hours": _MOST_HOURS}
    for name, most in limits.items():
        value = getattr(form, name)
        number = _number(value)
        if value and (number is None or number > most):
            found.append(Problem((name,), f"must be a number from 0 to {most}"))
    if form.reruns and not form.reruns.isdecimal():
        found.append(Problem(("reruns",), "must be a whole number"))
    if not any(form.is_chosen(platform.id) for platform in matrix.platforms):
        found.append(Problem(("platforms",), "choose at least one"))
    return found


def _source(context: Context, form: Form, matrix: Matrix) -> Source:
    """The text itself where nothing of it is changed: its mistakes have lines and columns."""
    subject = _subject(form)
    if not subject and not form.source:
        return form.text
    document = context.documents.matrix_document(matrix)
    own = document.get("subject")
    stated: dict[str, object] = dict(own) if isinstance(own, Mapping) else {}
    if form.source:
        for name in ("wheel", "package", "git"):
            stated.pop(name, None)
    return {**document, "subject": {**stated, **subject}}


def _subject(form: Form) -> Mapping[str, object]:
    """What the form says instead of the matrix."""
    said: dict[str, object] = {}
    if form.subject:
        said["name"] = form.subject
    if form.version:
        said["version"] = form.version
    if form.source == "package":
        said["package"] = form.package
    elif form.source == "wheel":
        said["wheel"] = "uploaded.whl"
    elif form.source == "git":
        said["git"] = {"url": form.url, "rev": form.rev}
    return said


def _only(context: Context, order: LaunchOrder, form: Form) -> Mapping[str, Sequence[str]] | None:
    """The jobs of every cell of the chosen platforms; None where all are."""
    if not any(not form.is_chosen(name) for name in form.known):
        return None
    _, plans = check_order(context, order, find_payload(context, order.payload))
    return {plan.id: plan.jobs for plan in plans if form.is_chosen(plan.platform.id)}


def _trials(form: Form) -> TrialOrder | None:
    reruns = int(form.reruns or 0)
    if not (reruns or form.diagnose):
        return None
    return TrialOrder(reruns=reruns, diagnose=form.diagnose)


def _seconds(hours: str) -> float | None:
    number = _number(hours)
    return number * 3600 if number else None


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None
