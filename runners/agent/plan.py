"""The plan: what the controller asks of this attempt (``plan.json``, version 1)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Mapping, Optional, Tuple, TypeVar

T = TypeVar("T")
Fields = Mapping[str, object]
_NUMBER = (int, float)

METADATA_URL = "http://169.254.169.254"
"""Where both clouds tell a machine about itself."""

DEVICES = ("cuda", "xla", "cpu")
CLOUDS = ("aws", "gcp")


class PlanError(ValueError):
    """The plan is invalid; the message says why."""


@dataclass(frozen=True)
class Environment:
    """What the overlay must hold."""

    name: str
    requirements: Tuple[str, ...]
    constraints: Tuple[str, ...]
    index: bool
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Subject:
    """The distribution under validation."""

    distribution: str
    version: str
    requirement: str


@dataclass(frozen=True)
class Limits:
    """Bounds of one attempt; sizes in bytes, times in seconds."""

    log_bytes: int = 64 * 1024 * 1024
    text_bytes: int = 64 * 1024
    restarts: int = 5
    deadline_s: float = 86_400.0
    kill_grace_s: float = 5.0
    heartbeat_s: float = 5.0


@dataclass(frozen=True)
class Baseline:
    """What paired benchmarks are measured against: an environment and a payload of its own."""

    payload: str
    wheels: Optional[str]
    environment: Environment
    subject: Optional[Subject]
    refused: str = ""
    """Why there is none; the rest is empty then."""


@dataclass(frozen=True)
class Pairing:
    """How many pairs of turns a benchmark takes."""

    min_pairs: int
    max_pairs: int
    precision: float
    """It ends once every ratio's confidence interval reaches no further to either side."""


@dataclass(frozen=True)
class Job:
    """One job of the payload: exactly one of ``pytest`` and ``command`` is set."""

    id: str
    kind: str
    pytest: Optional[Tuple[str, ...]]
    command: Optional[Tuple[str, ...]]
    timeout_s: float
    silence_s: float
    """Without output or a record for so long, it hangs."""
    env: Mapping[str, str]
    path_variables: Tuple[str, ...]
    gpus: int
    secrets: Tuple[str, ...]
    skip: Tuple[str, ...]
    test_silence_s: Mapping[str, float] = field(default_factory=dict)
    """By node id, the same of tests that are known to take longer."""
    only: Tuple[str, ...] = ()
    """The tests that are run of those that would be; empty for all."""
    paired: Optional[Pairing] = None
    """Measured in turns with the baseline."""
    metrics: Tuple[str, ...] = ()
    """Files below the payload's folder that come home."""
    turns: bool = False
    """It stays resident between its turns; otherwise each turn is a process of its own."""


@dataclass(frozen=True)
class Readiness:
    """What torch must be seen to do before the first job."""

    device: Optional[str]
    """cuda (which ROCm is, too), xla or cpu; None where nothing was promised."""
    enforce: bool
    """Whether the attempt ends here when it cannot."""
    timeout_s: float


@dataclass(frozen=True)
class Plan:
    """Everything the agent needs to know, except the secrets' values."""

    attempt: str
    payload: str
    wheels: Optional[str]
    python: str
    environment: Environment
    subject: Optional[Subject]
    payload_user: bool
    limits: Limits
    jobs: Tuple[Job, ...]
    readiness: Optional[Readiness] = None
    preemption: Optional[str] = None
    """Whose notices are listened for (aws or gcp), if the machine may be taken away."""
    metadata_url: str = METADATA_URL
    baseline: Optional[Baseline] = None


def load(path: Path) -> Plan:
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
    return _plan(raw)


def _plan(raw: Fields) -> Plan:
    jobs = tuple(
        _job(_table({f"jobs[{n}]": item}, f"jobs[{n}]"), f"jobs[{n}].")
        for n, item in enumerate(_list(raw, "jobs"))
    )
    names = [job.id for job in jobs]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise PlanError(f"plan.json names job {min(twice)!r} more than once")
    return Plan(
        attempt=_text(raw, "attempt"),
        payload=_name(raw, "payload"),
        wheels=_name(raw, "wheels") if raw.get("wheels") is not None else None,
        python=_text(raw, "python"),
        environment=_environment(_table(raw, "environment")),
        subject=_subject(raw),
        payload_user=_flag(raw, "payload_user", default=True),
        limits=_limits(_table(raw, "limits") if raw.get("limits") is not None else {}),
        jobs=jobs,
        readiness=_readiness(raw),
        preemption=_choice(raw, "preemption", CLOUDS),
        metadata_url=_text({"metadata_url": METADATA_URL, **raw}, "metadata_url"),
        baseline=_baseline(raw),
    )


def _baseline(raw: Fields) -> Optional[Baseline]:
    if raw.get("baseline") is None:
        return None
    found = _table(raw, "baseline")
    if found.get("refused"):
        nothing = Environment("", (), (), index=False, variables={})
        return Baseline("", None, nothing, None, refused=_text(found, "refused", "baseline."))
    return Baseline(
        payload=_name(found, "payload", "baseline."),
        wheels=_name(found, "wheels", "baseline.") if found.get("wheels") is not None else None,
        environment=_environment(_table(found, "environment")),
        subject=_subject(found),
    )


def _pairing(raw: Fields, at: str) -> Optional[Pairing]:
    if raw.get("paired") is None:
        return None
    asked, at = _table({f"{at}paired": raw["paired"]}, f"{at}paired"), f"{at}paired."
    least = max(int(_number(asked, "min_pairs", None, at)), 2)
    return Pairing(
        min_pairs=least,
        max_pairs=max(int(_number(asked, "max_pairs", None, at)), least),
        precision=_number(asked, "precision", None, at),
    )


def _readiness(raw: Fields) -> Optional[Readiness]:
    if raw.get("readiness") is None:
        return None
    asked, at = _table(raw, "readiness"), "readiness."
    return Readiness(
        device=_choice(asked, "device", DEVICES, at),
        enforce=_flag(asked, "enforce", at, default=False),
        timeout_s=_number(asked, "timeout_s", 120.0, at),
    )


def _environment(raw: Fields) -> Environment:
    at = "environment."
    return Environment(
        name=_text(raw, "name", at),
        requirements=_texts(raw, "requirements", at),
        constraints=_texts(raw, "constraints", at),
        index=_flag(raw, "index", at, default=False),
        variables=_variables(raw, "variables", at),
    )


def _subject(raw: Fields) -> Optional[Subject]:
    if raw.get("subject") is None:
        return None
    subject, at = _table(raw, "subject"), "subject."
    return Subject(
        distribution=_text(subject, "distribution", at),
        version=_text(subject, "version", at),
        requirement=_text(subject, "requirement", at),
    )


def _limits(raw: Fields) -> Limits:
    at, usual = "limits.", Limits()
    return Limits(
        log_bytes=int(_number(raw, "log_bytes", usual.log_bytes, at)),
        text_bytes=max(int(_number(raw, "text_bytes", usual.text_bytes, at)), 256),
        restarts=int(_number(raw, "restarts", usual.restarts, at)),
        deadline_s=_number(raw, "deadline_s", usual.deadline_s, at),
        kill_grace_s=_number(raw, "kill_grace_s", usual.kill_grace_s, at),
        heartbeat_s=max(_number(raw, "heartbeat_s", usual.heartbeat_s, at), 0.1),
    )


def _job(raw: Fields, at: str) -> Job:
    pytest = _texts(raw, "pytest", at) if raw.get("pytest") is not None else None
    command = _texts(raw, "command", at) if raw.get("command") is not None else None
    if (pytest is None) == (command is None):
        raise PlanError(f"plan.json: {at}pytest or {at}command is needed, and only one of them")
    if command is not None and not command:
        raise PlanError(f"plan.json: {at}command is empty")
    timeout_s = _number(raw, "timeout_s", None, at)
    return Job(
        id=_name(raw, "id", at),
        kind=_text(raw, "kind", at),
        pytest=pytest,
        command=command,
        timeout_s=timeout_s,
        silence_s=_number(raw, "silence_s", timeout_s, at),
        test_silence_s=_numbers(raw, "test_silence_s", at),
        env=_variables(raw, "env", at),
        path_variables=_texts(raw, "path_variables", at),
        gpus=int(_number(raw, "gpus", 0, at)),
        secrets=_texts(raw, "secrets", at),
        skip=_texts(raw, "skip", at),
        only=_texts(raw, "only", at),
        metrics=_texts(raw, "metrics", at),
        paired=_pairing(raw, at),
        turns=_flag(raw, "turns", at, default=False),
    )


def _need(raw: Fields, key: str, at: str, check: Callable[[object], Optional[T]], what: str) -> T:
    value = check(raw.get(key))
    if value is None:
        raise PlanError(f"plan.json: {at}{key} must be {what}, not {raw.get(key)!r:.80}")
    return value


def _text(raw: Fields, key: str, at: str = "") -> str:
    def check(value: object) -> Optional[str]:
        return value if isinstance(value, str) and value and "\0" not in value else None

    return _need(raw, key, at, check, "a text")


def _choice(raw: Fields, key: str, known: Tuple[str, ...], at: str = "") -> Optional[str]:
    if raw.get(key) is None:
        return None

    def check(value: object) -> Optional[str]:
        return value if isinstance(value, str) and value in known else None

    return _need(raw, key, at, check, f"one of {', '.join(known)}")


def _name(raw: Fields, key: str, at: str = "") -> str:
    """Read a text that becomes the name of a folder: it must not lead anywhere else."""
    text = _text(raw, key, at)
    if "/" in text or text.startswith("."):
        raise PlanError(f"plan.json: {at}{key} must be a plain name, not {text!r:.80}")
    return text


def _table(raw: Fields, key: str) -> Fields:
    def check(value: object) -> Optional[Fields]:
        return value if isinstance(value, dict) else None

    return _need(raw, key, "", check, "an object")


def _list(raw: Fields, key: str, at: str = "") -> Tuple[object, ...]:
    def check(value: object) -> Optional[Tuple[object, ...]]:
        return tuple(value) if isinstance(value, list) else None

    return _need(raw, key, at, check, "a list")


def _texts(raw: Fields, key: str, at: str) -> Tuple[str, ...]:
    if raw.get(key) is None:
        return ()
    items = _list(raw, key, at)
    return tuple(_text({f"{key}[{n}]": item}, f"{key}[{n}]", at) for n, item in enumerate(items))


def _variables(raw: Fields, key: str, at: str) -> Mapping[str, str]:
    table = _table({f"{at}{key}": raw.get(key) or {}}, f"{at}{key}")
    for name, value in table.items():
        good = isinstance(value, str) and name and not set("=\0") & set(name)
        if not good or "\0" in str(value):
            raise PlanError(f"plan.json: {at}{key}.{name} must be a text, not {value!r:.80}")
    return {name: str(value) for name, value in table.items()}


def _number(raw: Fields, key: str, usual: Optional[float], at: str) -> float:
    if raw.get(key) is None and usual is not None:
        return usual

    def check(value: object) -> Optional[float]:
        good = isinstance(value, _NUMBER) and not isinstance(value, bool) and 0 <= value < 1e12
        return value if good and isinstance(value, _NUMBER) else None

    return _need(raw, key, at, check, "a number that is not negative")


def _numbers(raw: Fields, key: str, at: str) -> Mapping[str, float]:
    table = _table({f"{at}{key}": raw.get(key) or {}}, f"{at}{key}")
    return {name: _number(table, name, None, f"{at}{key}.") for name in table}


def _flag(raw: Fields, key: str, at: str = "", *, default: bool) -> bool:
    if raw.get(key) is None:
        return default

    def check(value: object) -> Optional[bool]:
        return value if isinstance(value, bool) else None

    return _need(raw, key, at, check, "true or false")


NOTHING = Plan(
    attempt="",
    payload="",
    wheels=None,
    python="",
    environment=Environment("", (), (), index=False, variables={}),
    subject=None,
    payload_user=False,
    limits=Limits(),
    jobs=(),
)
"""Stands for a plan that cannot be read."""
