"""Which interpreter and which packages an attempt gets on its machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from orchestrator.application.cell.world import Situation, World
from orchestrator.application.ports.wheels import WheelsError


class EnvironmentRefusedError(Exception):
    """No environment can be made as it was asked for; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class PreparedEnvironment:
    """What the agent needs to build the overlay environment."""

    python: str
    """Absolute path of the chosen interpreter on the machine."""
    requirements: tuple[str, ...]
    """Those that the interpreter does not satisfy already."""
    constraints: tuple[str, ...]
    """Versions that must stay."""
    wheels_digest: str | None
    """sha256 of the wheelhouse's archive; None when nothing has to be shipped."""
    wheels: Callable[[], Iterable[bytes]]
    """Opens that archive."""
    subject: Mapping[str, str] | None
    """Distribution, version and requirement of the subject, where it is installed."""


def prepare_environment(
    world: World, now: Situation, probe: Mapping[str, object]
) -> PreparedEnvironment:
    """Choose an interpreter and resolve what it lacks; may take minutes.

    Raises EnvironmentRefusedError.
    """
    manifest, name = now.spec.manifest, now.plan.environment
    asked = manifest.environment(name)
    choice = world.wheels.choose(probe, manifest, name)
    if asked is None or choice.interpreter is None:
        raise EnvironmentRefusedError(choice.reason or f"the payload has no environment {name!r}")
    digest = now.spec.subject_digest
    try:
        resolved = world.wheels.resolve(
            choice.interpreter,
            asked,
            subject=now.spec.matrix.subject,
            wheel=partial(world.blobs.open, digest) if digest else None,
        )
    except WheelsError as error:
        raise EnvironmentRefusedError(str(error)) from error
    return PreparedEnvironment(
        python=choice.interpreter.path,
        requirements=resolved.requirements,
        constraints=resolved.constraints,
        wheels_digest=resolved.wheels,
        wheels=partial(world.wheels.open, resolved.wheels or ""),
        subject=resolved.subject,
    )
