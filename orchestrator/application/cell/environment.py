"""Selection of interpreter and packages for an attempt on its machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from orchestrator.application.cell.flow_context import FlowDeps
from orchestrator.application.ports.wheels import Resolution, WheelsError
from orchestrator.domain.attestation import devices_of
from orchestrator.domain.cell import RunSpec
from orchestrator.domain.manifest import Environment
from orchestrator.domain.reuse_inputs import NOTHING, Interpreter
from orchestrator.domain.torch_build import cuda_refusal
from orchestrator.store.cells import AttemptState


class EnvironmentRefusedError(Exception):
    """The requested environment cannot be created; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class PreparedEnvironment:
    """The agent's instructions for the overlay environment."""

    python: str
    """Absolute path of the chosen interpreter on the machine."""
    requirements: tuple[str, ...]
    """Requirements that the interpreter does not meet."""
    constraints: tuple[str, ...]
    """Versions that must not change."""
    wheels_digest: str | None
    """sha256 of the wheelhouse's archive; None when nothing has to be shipped."""
    wheels: Callable[[], Iterable[bytes]]
    """Opens the wheelhouse's archive."""
    wheels_bytes: int
    """Size of the wheelhouse's archive."""
    subject: Mapping[str, str] | None
    """Distribution, version and requirement of the subject, where it is installed."""
    interpreter: Interpreter
    """The chosen interpreter, as probed."""
    packages: Mapping[str, str]
    """Versions of all importable packages, by name."""
    installs: str
    """Digest of the wheelhouse, `NOTHING`, or empty if the machine's own index may add to it."""


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """Packages to install for an interpreter, and the modules that are importable then."""

    resolution: Resolution
    packages: Mapping[str, str]
    installs: str


def prepare_environment(
    deps: FlowDeps, now: AttemptState, probe: Mapping[str, object]
) -> PreparedEnvironment:
    """Choose an interpreter and resolve missing packages; may take minutes.

    Raises EnvironmentRefusedError.
    """
    manifest, name = now.spec.manifest, now.plan.environment
    choice = deps.wheels.choose(probe, manifest, name)
    if choice.interpreter is None:
        raise EnvironmentRefusedError(choice.reason or f"the payload has no environment {name!r}")
    try:
        found = resolved_for(deps, now.spec, name, choice.interpreter)
    except WheelsError as error:
        raise EnvironmentRefusedError(str(error)) from error
    resolved = found.resolution
    if now.lease is not None and deps.traits(now.lease.provider).rented:
        refusal = cuda_refusal(resolved.packages, devices_of(probe))
        if refusal:
            raise EnvironmentRefusedError(refusal)
    return PreparedEnvironment(
        python=choice.interpreter.path,
        requirements=resolved.requirements,
        constraints=resolved.constraints,
        wheels_digest=resolved.wheels,
        wheels=partial(deps.wheels.open, resolved.wheels or ""),
        wheels_bytes=resolved.size_bytes,
        subject=resolved.subject,
        interpreter=choice.interpreter,
        packages=found.packages,
        installs=found.installs,
    )


def resolved_for(deps: FlowDeps, spec: RunSpec, name: str, interpreter: Interpreter) -> InstallPlan:
    """Return the packages that the run's environment adds to an interpreter. Raises WheelsError."""
    asked = spec.manifest.environment(name)
    if asked is None:
        raise WheelsError(f"the payload has no environment {name!r}")
    digest = spec.subject_digest
    resolved = deps.wheels.resolve(
        interpreter,
        asked,
        subject=spec.matrix.subject,
        wheel=partial(deps.blobs.open, digest) if digest else None,
    )
    packages = {**interpreter.packages, **resolved.packages}
    return InstallPlan(resolved, packages, _installs(asked, resolved))


def _installs(environment: Environment, resolved: Resolution) -> str:
    if not resolved.requirements and resolved.subject is None:
        return NOTHING
    return "" if environment.index else resolved.wheels or ""
