"""A cloud in memory on which tests fail as a test says: again, with a baseline, by revision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from orchestrator.application.cell.flow_context import FlowDeps
from orchestrator.application.ports.wheels import (
    Choice,
    Opener,
    Resolution,
    WheelsError,
    WheelSizes,
)
from orchestrator.domain.manifest import Environment, Manifest
from orchestrator.domain.matrix import Subject
from orchestrator.domain.reuse_inputs import Interpreter
from orchestrator.store.retests import RetestStore
from runners.fake import FakeWorkspace
from runners.fake.fake_machine import _event, _finished, _report, ended
from tests.integration.fake_world import FakeWorld

Word = Callable[[str, Mapping[str, object]], str]
"""The outcome of a job's test, by the job and the attempt's plan."""


class NoWheels:
    """Everything is there already, but for versions that are refused."""

    def __init__(self, refused: set[str]) -> None:
        self.refused = refused

    def choose(self, probe: Mapping[str, object], manifest: Manifest, environment: str) -> Choice:
        return Choice(Interpreter("/usr/bin/python3", "3.11.2", "cpython", "x86_64", None, {}))

    def resolve(
        self,
        interpreter: Interpreter,
        environment: Environment,
        *,
        subject: Subject,
        wheel: Opener | None = None,
        requires: Sequence[str] = (),
        limit_bytes: int,
    ) -> Resolution:
        if subject.package in self.refused:
            raise WheelsError(f"no index has {subject.package}")
        version = subject.version or (subject.package or "").partition("==")[2]
        told = {"distribution": subject.name, "version": version, "requirement": ""}
        return Resolution(environment.pip, (), subject=told)

    def assume(self, manifest: Manifest, environment: str, *, torch: str) -> Interpreter:
        return self.choose({}, manifest, environment).interpreter

    def sizes(self, interpreter: Interpreter, environment: Environment, **_: object) -> WheelSizes:
        return WheelSizes({}, 0, {})

    def open(self, digest: str) -> Iterator[bytes]:
        return iter(())


@dataclass(slots=True)
class RetestWorld(FakeWorld):
    """`FakeWorld` whose machines run a script of failures."""

    word: Word = lambda job, plan: "failed"
    refused: set[str] = field(default_factory=set)
    spoil: Callable[[RetestStore], RetestStore] | None = None
    """Puts something between the flow and its retests' store."""
    environment: Mapping[str, object] = field(default_factory=dict)
    """What machines say they are."""
    plans: list[Mapping[str, object]] = field(default_factory=list)

    def _world(self) -> FlowDeps:
        world = FakeWorld._world(self)
        wheels = NoWheels(self.refused)
        stores = self.database.stores
        if self.spoil is not None:
            stores = replace(stores, retests=self.spoil(stores.retests))
        return replace(world, stores=stores, wheels=wheels, open_workspace=self._scripted)

    def _scripted(self, endpoint: object) -> FakeWorkspace:
        workspace = FakeWorld._workspace(self, endpoint)
        workspace.computer.script = partial(told, self)
        workspace.computer.lines_per_look = 6
        return workspace


def told(world: RetestWorld, plan: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """What an agent writes: each job has one test."""
    world.plans.append(plan)
    jobs = plan["jobs"]
    assert isinstance(jobs, list)
    if world.environment:
        yield _event("environment", None, world.environment)
    for row in jobs:
        name = row["id"]
        job = name.rpartition("~")[0] or name
        nodeid = f"{job}.py::test_{job}"
        yield _event("phase", name, {"name": "started", "kind": "suite", "pid": 1})
        yield _event("manifest", name, {"tests": [nodeid], "process": 1})
        word = world.word(job, plan)
        for when in ("setup", "call", "teardown"):
            report = _report(nodeid, when)
            if when == "call":
                report["outcome"] = word
            yield _event("test", name, report)
        yield _event("phase", name, {**_finished(), "exit_code": int(word != "passed")})
    yield ended("completed")


def subject_version(plan: Mapping[str, object]) -> str:
    """Of the subject that an agent was told to install."""
    subject = plan["subject"]
    return str(subject["version"]) if isinstance(subject, dict) else ""
