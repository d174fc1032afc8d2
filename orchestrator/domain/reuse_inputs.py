"""Reuse inputs: everything that a job's evidence depends on; with equal inputs it is reused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta

from orchestrator.domain.manifest import Job
from orchestrator.domain.matrix import Platform

REUSED = "reused"
"""Reason of a job or cell whose evidence is reused."""
NOTHING = "none"
"""Value of an absent input, such as the driver of a machine without a device."""
_MOST_NAMED = 3
_DIGEST_SHOWN = 12
_NOT_COMPARED = frozenset(
    {"id", "locations", "market", "connect", "bastion", "hosts", "environments", "optional"}
)
"""Platform keys that select a machine, but do not change its properties."""
_ASKED = ("product", "payload", "subject", "environment", "platform", "tool")
_FOUND = ("instance_type", "image", "devices", "driver", "python", "records", "wheels")
_WORDS = {"instance_type": "instance type", "records": "installed files", "tool": "seatrial"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseInputs:
    """The inputs that an attempt's evidence depends on.

    An empty text is an unknown input. Evidence with unknown inputs is not reused.
    """

    product: str
    payload: str
    """Digest of the payload's archive: tests, jobs, environments and their variables."""
    subject: str
    """Name and version of the subject, and the digest of its wheel if there is one."""
    environment: str
    platform: Mapping[str, str]
    """Id, provider and hardware requirements of the platform."""
    tool: str
    """Version of Seatrial."""
    instance_type: str
    image: str
    """Id of the image; for an own host, what the host reports."""
    devices: str
    driver: str
    python: str
    records: str
    """Digest of the RECORD files of the interpreter's own packages."""
    wheels: str
    """Digest of the packages that were added to the interpreter's own."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of all importable packages, by name."""
    simulated: bool = False

    @property
    def key(self) -> str:
        """sha256 of all inputs. Equal keys allow reuse only if `unknown` is empty."""
        return _digest(asdict(self))

    @property
    def asked(self) -> str:
        """sha256 of the inputs that are known before there is a machine."""
        return _digest({name: getattr(self, name) for name in _ASKED})

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the unknown inputs."""
        names = (*_ASKED, *_FOUND)
        return tuple(_word(name) for name in names if not getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """The decision whether the evidence of one job is reused."""

    job: str
    why: str
    """The reason for the decision, for a person."""
    run: str = ""
    """Id of the run with the evidence; empty if the job has to run."""
    cell: str = ""
    """Id of the cell with the evidence, unique across runs; empty if the job has to run."""
    at: datetime | None = None
    """When the evidence was produced; None if the job has to run."""

    @property
    def is_reused(self) -> bool:
        """Whether the evidence is reused, so that the job does not run."""
        return bool(self.cell)


def platform_document(platform: Platform) -> dict[str, str]:
    """Return the fields of a platform that evidence depends on, as texts."""
    asked = asdict(platform)
    told = {key: value for key, value in asked.items() if value not in (None, False, {}, ())}
    kept = {key: value for key, value in told.items() if key not in _NOT_COMPARED}
    return {"id": platform.id, **{key: _plain(value) for key, value in sorted(kept.items())}}


def refusal_of(job: Job, *, paired: bool) -> str:
    """Return why a job must run again; empty if its evidence may be reused.

    Args:
        job: The job of the payload.
        paired: Whether the run has a baseline that benchmarks are paired with.
    """
    if job.secrets:
        names = ", ".join(job.secrets)
        return f"it is handed secrets ({names}), and what they open may have changed"
    if paired and job.turns:
        return "it is measured against the baseline, on one machine and in turns"
    return ""


def too_old(at: datetime, *, now: datetime, max_age_s: float) -> str:
    """Return why evidence is too old to be reused; empty if it is not too old."""
    if now - at <= timedelta(seconds=max_age_s):
        return ""
    return f"evidence is {age(now - at)} old, {age(timedelta(seconds=max_age_s))} allowed"


def age(span: timedelta) -> str:
    """Return an age in words: ``5 h``, ``40 min``, ``3 d``."""
    minutes = int(span.total_seconds() // 60)
    if minutes < 1:
        return "less than a minute"
    if minutes < 2 * 60:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h" if hours < 4 * 24 else f"{hours // 24} d"


def produced_at(finished: datetime, *, since: datetime, until: datetime) -> datetime:
    """Return when evidence was produced: the machine's time, limited by the controller's clock."""
    return max(since, min(finished, until))


def changes(old: ReuseInputs, new: ReuseInputs) -> tuple[str, ...]:
    """Return the differences between two inputs, each in a few words."""
    return tuple(_changes(old, new))


def in_words(names: Sequence[str]) -> str:
    """Return the first differences in one text, with the number of others."""
    more = len(names) - _MOST_NAMED
    told = "; ".join(names[:_MOST_NAMED])
    return f"{told}; and {more} more" if more > 0 else told


def all_reusable(runs: Sequence[str]) -> str:
    """Return the detail of a cell whose jobs are all reused from these runs."""
    named = ", ".join(dict.fromkeys(runs))
    what = "its job depends on" if len(runs) == 1 else f"its {len(runs)} jobs depend on"
    return f"proven by run {named}: nothing {what} has changed"


def _changes(old: ReuseInputs, new: ReuseInputs) -> Iterator[str]:
    for name in ("product", "payload", "subject", "environment", "tool"):
        yield from _changed(f"{_word(name)} changed: ", getattr(old, name), getattr(new, name))
    for key, before, after in _differing(old.platform, new.platform):
        yield from _changed(f"platform changed: {key} ", before, after)
    for name in ("instance_type", "image", "devices", "driver", "python"):
        yield from _changed(f"{_word(name)} changed: ", getattr(old, name), getattr(new, name))
    packages = tuple(_differing(old.packages, new.packages))
    for name, before, after in packages:
        yield from _changed("torch " if name == "torch" else f"package {name} ", before, after)
    for name in () if packages else ("records", "wheels"):
        where = " in the interpreter" if name == "records" else ""
        yield from _changed(
            f"other files of the same versions are installed{where}: ",
            getattr(old, name),
            getattr(new, name),
        )
    if old.simulated != new.simulated:
        kinds = {True: "an emulated machine", False: "a real machine"}
        yield f"evidence is of {kinds[old.simulated]}, and {kinds[new.simulated]} is asked for"


def _changed(what: str, before: str, after: str) -> Iterator[str]:
    if before != after:
        yield f"{what}{_shown(before)} → {_shown(after)}"


def _differing(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name in sorted({*old, *new}):
        before, after = old.get(name, NOTHING), new.get(name, NOTHING)
        if before != after:
            yield name, before, after


def _shown(value: str) -> str:
    """Return the value with shortened digests; ``unknown`` if it is empty."""
    words = (w[:_DIGEST_SHOWN] if len(w) == 64 and w.isalnum() else w for w in value.split(" "))
    return " ".join(words) or "unknown"


def _word(name: str) -> str:
    return _WORDS.get(name, name)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python interpreter on the machine, as the agent found it."""

    path: str
    version: str
    implementation: str
    machine: str
    libc: tuple[str, str] | None
    """Name and version, ``("glibc", "2.36")``; None if it is unknown."""
    packages: Mapping[str, str]
    """Versions of its packages, by canonical name."""
    pip: str | None = None
    kernel: str = ""
    records: str = ""
    """sha256 of the RECORD files of all distributions; empty if it is unknown."""

    @property
    def platform(self) -> str:
        """Description for a person: ``Python 3.11.2 on x86_64 with glibc 2.36``."""
        libc = f" with {' '.join(self.libc)}" if self.libc else ""
        return f"Python {self.version} on {self.machine}{libc}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """The inputs of a prepared attempt, which are stored for later comparison."""

    ingredients: ReuseInputs
    interpreter: Interpreter
    place: str
    """Name of the machine's place."""
    shipped_bytes: int = 0
    """Bytes of the wheels that were sent to the machine."""
