"""The controller's plan of this attempt (``plan.json``, version 1).

Its classes declare the format: one reader checks every value against the type of its field.
"""

from __future__ import annotations

import json
from collections import abc
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import (
    Any,
    Dict,
    Literal,
    Mapping,
    NewType,
    Optional,
    Tuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

METADATA_URL = "http://169.254.169.254"
"""Address of the metadata service of both clouds."""

Name = NewType("Name", str)
"""A name of a folder, checked so that it cannot lead out of its parent folder."""


_LEAST = "least"
"""Metadata key of a field: values below this minimum are raised to it."""


class PlanError(ValueError):
    """The plan is invalid; the message gives the reason."""


@dataclass(frozen=True)
class PlanEnvironment:
    """The environment that the agent builds for the jobs.

    It has a name, requirements, constraints, whether a package index is used, and variables.
    """

    name: str
    requirements: Tuple[str, ...] = ()
    constraints: Tuple[str, ...] = ()
    index: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanSubject:
    """The distribution under validation."""

    distribution: str
    version: str
    requirement: str


@dataclass(frozen=True)
class PlanProduct:
    """The subject's name and version as the matrix states them, also where it is the payload."""

    name: str
    version: str


@dataclass(frozen=True)
class AttemptLimits:
    """Bounds of one attempt; sizes in bytes, times in seconds."""

    log_bytes: int = 64 * 1024 * 1024
    text_bytes: int = field(default=64 * 1024, metadata={_LEAST: 256})
    restarts: int = 5
    deadline_s: float = 86_400.0
    kill_grace_s: float = 5.0
    heartbeat_s: float = field(default=5.0, metadata={_LEAST: 0.1})


@dataclass(frozen=True)
class PlanBaseline:
    """The baseline of paired benchmarks, with a separate environment and payload."""

    payload: Name
    environment: PlanEnvironment
    wheels: Optional[Name] = None
    subject: Optional[PlanSubject] = None
    refused: str = ""
    """Why the baseline is missing; the other fields are empty then."""


@dataclass(frozen=True)
class Pairing:
    """The number of pairs of turns of a benchmark."""

    min_pairs: int = field(metadata={_LEAST: 2})
    max_pairs: int
    precision: float
    """The benchmark ends once every ratio's confidence interval is at most this wide per side."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_pairs", max(self.min_pairs, self.max_pairs))


@dataclass(frozen=True)
class PlanJob:
    """One job of the payload: exactly one of ``pytest`` and ``command`` is set."""

    id: Name
    kind: str
    timeout_s: float
    silence_s: float
    """Seconds without output or a record after which the job is regarded as hung."""
    pytest: Optional[Tuple[str, ...]] = None
    command: Optional[Tuple[str, ...]] = None
    env: Mapping[str, str] = field(default_factory=dict)
    path_variables: Tuple[str, ...] = ()
    gpus: int = 0
    secrets: Tuple[str, ...] = ()
    skip: Tuple[str, ...] = ()
    silence_source: Literal["matrix", "payload", "durations", "default"] = "default"
    """``idle_timeout_minutes`` in the matrix or in payload.toml, the durations of earlier runs, or
    the controller's default.
    """
    test_silence_s: Mapping[str, float] = field(default_factory=dict)
    """As `silence_s` in seconds, by node id, for tests that took longer in earlier runs."""
    only: Tuple[str, ...] = ()
    """The tests to run, by node id; empty for all."""
    paired: Optional[Pairing] = None
    """The number of pairs, if the job is measured in turns with the baseline; else None."""
    metrics: Tuple[str, ...] = ()
    """Metric files below the payload's folder that are collected."""
    turns: bool = False
    """Whether the process stays resident between turns; otherwise each turn starts a process."""


@dataclass(frozen=True)
class Readiness:
    """The check of torch before the first job."""

    device: Optional[Literal["cuda", "xla", "cpu"]] = None
    """cuda (also for ROCm), xla or cpu; None if the platform has no known device."""
    enforce: bool = False
    """Whether a failed check ends the attempt."""
    timeout_s: float = 120.0


@dataclass(frozen=True)
class AgentPlan:
    """The agent's complete input, without the secrets' values."""

    attempt: str
    payload: Name
    python: str
    environment: PlanEnvironment
    jobs: Tuple[PlanJob, ...]
    wheels: Optional[Name] = None
    subject: Optional[PlanSubject] = None
    payload_user: bool = True
    limits: AttemptLimits = AttemptLimits()
    readiness: Optional[Readiness] = None
    preemption: Optional[Literal["aws", "gcp"]] = None
    """The cloud whose preemption notices are polled, if the machine may be preempted."""
    metadata_url: str = METADATA_URL
    metadata_guard: bool = False
    """Whether jobs are kept from the cloud's metadata server."""
    untrusted: bool = False
    """Whether nothing runs unless the jobs have a user of their own without that server."""
    baseline: Optional[PlanBaseline] = None
    product: Optional[PlanProduct] = None


NOTHING = AgentPlan(Name(""), Name(""), "", PlanEnvironment(""), (), payload_user=False)
"""A placeholder for an unreadable plan."""


def load(path: Path) -> AgentPlan:
    """Read and check a plan.

    Raises:
        PlanError: it is missing, no JSON, or not of the shape that this agent knows.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"plan.json cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"plan.json is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise PlanError("plan.json must be an object")
    if raw.get("v") != 1:
        raise PlanError(f"plan.json has version {raw.get('v')!r}; this agent knows version 1")
    return _checked(_record(AgentPlan, _without_refused(raw), ""), raw)


def _without_refused(raw: Dict[str, object]) -> Dict[str, object]:
    """Return the plan without a baseline that only has the reason why it is missing."""
    baseline = raw.get("baseline")
    if isinstance(baseline, dict) and baseline.get("refused"):
        return {**raw, "baseline": None}
    return raw


def _checked(plan: AgentPlan, raw: Dict[str, object]) -> AgentPlan:
    """Return the plan after checking that its parts are consistent. Raises PlanError."""
    names = [job.id for job in plan.jobs]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise PlanError(f"plan.json names job {min(twice)!r} more than once")
    for number, job in enumerate(plan.jobs):
        at = f"jobs[{number}]"
        if (job.pytest is None) == (job.command is None):
            raise PlanError(
                f"plan.json: {at}.pytest or {at}.command is needed, and only one of them"
            )
        if job.command is not None and not job.command:
            raise PlanError(f"plan.json: {at}.command is empty")
    baseline = raw.get("baseline")
    if isinstance(baseline, dict) and baseline.get("refused"):
        why = _read(str, baseline["refused"], "baseline.refused")
        return replace(plan, baseline=PlanBaseline(Name(""), PlanEnvironment(""), refused=why))
    return plan


def _record(kind: Any, raw: Dict[str, object], at: str) -> Any:  # noqa: ANN401 - what `kind` says
    """Read a dataclass of the plan; a missing value or null becomes the field's default."""
    if kind is PlanJob and raw.get("silence_s") is None:
        raw = {**raw, "silence_s": raw.get("timeout_s")}
    types, found = get_type_hints(kind), {}
    for one in fields(kind):
        value = raw.get(one.name)
        if value is None and (one.default, one.default_factory) != (MISSING, MISSING):
            continue
        value = _read(types[one.name], value, f"{at}.{one.name}" if at else one.name)
        found[one.name] = max(value, one.metadata[_LEAST]) if one.metadata else value
    return kind(**found)


def _read(kind: Any, value: object, at: str) -> Any:  # noqa: ANN401 - what `kind` says
    """Read a value of a field's type. Raises PlanError with its place."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Union:
        return None if value is None else _read(inner[0], value, at)
    if is_dataclass(kind):
        return _record(kind, _needed(value, isinstance(value, dict), "an object", at), at)
    if origin is tuple:
        items = _needed(value, isinstance(value, list), "a list", at)
        return tuple(_read(inner[0], each, f"{at}[{n}]") for n, each in enumerate(items))
    if origin is abc.Mapping:
        return _table(inner[1], _needed(value, isinstance(value, dict), "an object", at), at)
    return _scalar(kind, value, at)


def _scalar(kind: Any, value: object, at: str) -> Any:  # noqa: ANN401 - what `kind` says
    if get_origin(kind) is Literal:
        words = get_args(kind)
        return _needed(value, value in words, f"one of {', '.join(words)}", at)
    if kind is bool:
        return _needed(value, isinstance(value, bool), "true or false", at)
    if kind in (int, float):
        return kind(_needed(value, _is_amount(value), "a number that is not negative", at))
    text = _needed(value, _is_text(value) and value != "", "a text", at)
    if kind is Name:
        is_plain = "/" not in text and not text.startswith(".")
        return _needed(text, is_plain, "a plain name", at)
    return text


def _table(kind: Any, table: Dict[str, object], at: str) -> Mapping[str, Any]:  # noqa: ANN401
    """Read a table of numbers, or of environment variables by their names."""
    if kind is not str:
        return {key: _read(kind, each, f"{at}.{key}") for key, each in table.items()}
    for key, each in table.items():
        is_name = key != "" and not set("=\0") & set(key)
        _needed(each, is_name and _is_text(each), "a text", f"{at}.{key}")
    return {key: str(each) for key, each in table.items()}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12


def _needed(value: Any, is_right: bool, what: str, at: str) -> Any:  # noqa: ANN401
    """Return the value if `is_right`; otherwise raise PlanError with its place."""
    if not is_right:
        raise PlanError(f"plan.json: {at} must be {what}, not {value!r:.80}")
    return value
