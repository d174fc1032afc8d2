"""What a history of the leak proof is told, and the parts of its world that are stand-ins."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from orchestrator.application.cell.flow_context import Timings
from orchestrator.application.ports.wheels import Choice, Resolution, WheelSizes
from orchestrator.domain.cell import Lease, RunSpec
from orchestrator.domain.machine import Login, Provider, ProviderTraits
from orchestrator.domain.manifest import Job, Manifest
from orchestrator.domain.matrix import JobSelection, Limits, Matrix, Metadata, Platform, Subject
from orchestrator.domain.reuse_inputs import Interpreter
from orchestrator.store.stores import Stores
from runners.fake.fake_machine import ended
from tests.integration.faulty_connection import Line
from tests.integration.faulty_script import Script
from tests.integration.memory_engine import SimulatedCrashError

TRAITS = ProviderTraits(name="clumsy", keys=frozenset(), rented=True)
LOGIN = Login("ssh-ed25519 AAAA", "private", "ssh-ed25519 BBBB", "private")
TIMINGS = Timings(place_s=900, ordered_s=300, boot_s=300, prepare_s=300)
MAX_MINUTES = 20.0
SWEEP_EVERY_S = 180.0
PATIENCE_S = 6 * 3600.0
"""So long the janitors may need, once everything else is over."""
LONGEST_CALL_S = 45
AT_HOME = {"flow", "controller"}
CENT_OF_CENT = Decimal("0.0001")
WRITES = {
    "leases": frozenset(
        [
            "reserve",
            "launching",
            "active",
            "reached",
            "releasing",
            "gone",
            "reopen",
            "note",
            "keep_login",
            "attest",
            "decide",
        ]
    ),
    "cells": frozenset(["admit", "enter", "requeue", "conclude", "record_cause"]),
    "orphans": frozenset(["see"]),
}
"""Store calls before and after which a controller may die."""


class LeakError(AssertionError):
    """Something is left, paid twice, not paid, or was ended by the wrong one."""


@dataclass(frozen=True, slots=True)
class Crash:
    """A controller dies, and another process comes up some time later."""

    after_points: int
    """Counted from its start; every provider call and every store write has some."""
    down_s: int


@dataclass(frozen=True, slots=True)
class Plot:
    """Everything that is drawn; the defaults are a run that goes well."""

    cloud: Script = Script()
    crashes: tuple[Crash, ...] = ()
    is_forsaken: bool = False
    """After the last crash nobody comes back to the home: an empty one must end everything."""
    has_neighbour: bool = False
    """Another controller of the project, with a home of its own, sweeps all the time."""
    cancel_at_s: int | None = None
    retries: int = 0
    max_usd: Decimal = Decimal(5)
    pace_s: int = 10
    """Between two looks."""
    works_for: int = 2
    """So many looks at the agent until it ends."""


class Fused:
    """A store at whose writes a process may die."""

    def __init__(
        self,
        store: object,
        writes: Iterable[str],
        trips: Callable[[str], bool],
        seen: Callable[[str, tuple[object, ...], object], None],
    ) -> None:
        self._store, self._writes, self._trips, self._seen = store, writes, trips, seen

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._store, name)
        if name not in self._writes:
            return method

        def write(*arguments: object, **named: object) -> object:
            if self._trips(f"{name}, before"):
                raise SimulatedCrashError(f"{name}, before")
            answer = method(*arguments, **named)
            self._seen(name, arguments, answer)
            if self._trips(f"{name}, stored"):
                raise SimulatedCrashError(f"{name}, stored")
            return answer

        return write


class Shelf:
    """Blobs that nobody will read."""

    def put(self, chunks: Iterable[bytes], **_: object) -> tuple[str, int]:
        data = b"".join(chunks)
        return hashlib.sha256(data).hexdigest(), len(data)

    def open(self, digest: str) -> Iterator[bytes]:
        return iter([b""])

    def has(self, digest: str) -> bool:
        return True


class NoWheels:
    """Every machine has what it needs."""

    def choose(self, probe: Mapping[str, object], manifest: Manifest, environment: str) -> Choice:
        libc = ("glibc", "2.36")
        return Choice(Interpreter("/usr/bin/python3", "3.11.2", "cpython", "x86_64", libc, {}))

    def resolve(self, interpreter: Interpreter, environment: object, **_: object) -> Resolution:
        return Resolution((), ())

    def assume(self, manifest: Manifest, environment: str, *, torch: str) -> Interpreter:
        return self.choose({}, manifest, environment).interpreter

    def sizes(self, interpreter: Interpreter, environment: object, **_: object) -> WheelSizes:
        return WheelSizes({}, 0, {})

    def open(self, digest: str) -> Iterator[bytes]:
        return iter(())


def _as_it_is(thing: object) -> object:
    return thing


@dataclass(frozen=True, slots=True)
class Plant:
    """A bug that is put between the flow or the janitor and what they use, to be caught."""

    stores: Callable[[Stores], Stores] = _as_it_is
    provider: Callable[[Provider], Provider] = _as_it_is
    janitors_provider: Callable[[Provider], Provider] = _as_it_is


SOUND = Plant()
SPEC = RunSpec(
    Matrix(
        metadata=Metadata(name="leaks"),
        subject=Subject(name="steps", version="1"),
        platforms=(Platform(id="cloudy", provider="clumsy"),),
        jobs=(JobSelection(select="*"),),
        limits=Limits(max_usd=Decimal(5), max_minutes=MAX_MINUTES),
    ),
    Manifest(name="steps", version="1", job=(Job(id="one", kind="suite", pytest=("test.py",)),)),
)
CELL = "run-0"


class JanitorsLine(Line):
    """Tells what it is about to end."""

    __slots__ = ("ends",)
    ends: Callable[[str], None]

    def terminate(self, machine_id: str) -> None:
        self.ends(machine_id)
        Line.terminate(self, machine_id)


def work(looks: int) -> Iterator[dict[str, object]]:
    for _ in range(looks):
        yield {"kind": "phase", "job": None, "data": {"name": "running"}}
    yield dict(ended("completed"))


def check_ids(leases: list[Lease]) -> None:
    held = Counter(lease.machine_id for lease in leases if lease.machine_id)
    twice = [machine_id for machine_id, count in held.items() if count > 1]
    if twice:
        raise LeakError(f"paid twice: {twice}")


def check_refused(lease: Lease) -> None:
    if not lease.machine_id and lease.cost_usd:
        raise LeakError(f"overpaid: {lease.id} never had a machine, and cost {lease.cost_usd}")
    code = lease.facts.get("refusal_code", "")
    if code in ("capacity", "quota") and lease.refusal and lease.cost_usd:
        raise LeakError(f"overpaid: {lease.id} was refused, and cost {lease.cost_usd}")
