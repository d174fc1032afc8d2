"""Selection of interpreter and packages for an attempt on its machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Protocol

from orchestrator.application.cell.flow_context import FlowDeps
from orchestrator.application.ports.blobs import Blobs
from orchestrator.application.ports.wheels import Resolution, Wheels, WheelsError, WheelSizes
from orchestrator.domain.attestation import devices_of
from orchestrator.domain.cell import RunSpec
from orchestrator.domain.launch_plan import Shipment, over_limit
from orchestrator.domain.machine import Place, Provider
from orchestrator.domain.manifest import Environment
from orchestrator.domain.matrix import CellPlan, Platform
from orchestrator.domain.quota import Images
from orchestrator.domain.reuse_inputs import NOTHING, Interpreter, Prepared, platform_document
from orchestrator.domain.torch_build import cuda_refusal, has_no_nvidia, torch_build
from orchestrator.store.cells import AttemptState
from orchestrator.store.stores import Stores


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
    """Distribution, version and requirement of the subject; None if it is not installed."""
    interpreter: Interpreter
    """The chosen interpreter, as probed."""
    packages: Mapping[str, str]
    """Versions of all importable packages, by name."""
    installs: str
    """Digest of the wheelhouse, or `NOTHING`; empty if the machine's own index may add packages."""


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
        has_nvidia = any(device.vendor == "nvidia" for device in devices_of(probe))
        refusal = "" if has_nvidia else cuda_refusal(resolved.packages, "the machine")
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
        requires=spec.manifest.python.requires,
        limit_bytes=spec.matrix.limits.max_shipped_bytes,
    )
    packages = {**interpreter.packages, **resolved.packages}
    return InstallPlan(resolved, packages, _installs(asked, resolved))


class ShipmentPorts(Protocol):
    """The ports that compute what a machine is sent."""

    @property
    def stores(self) -> Stores:
        """Every store."""

    @property
    def blobs(self) -> Blobs:
        """Payloads and wheels."""

    @property
    def wheels(self) -> Wheels:
        """Resolves packages."""


_REMEMBERED = 200
"""Number of newest attempts among which one of the same platform is looked for."""


class ExpectedShipments:
    """Computes what a run's machines will be sent; reads wheel and earlier attempts only once."""

    def __init__(self, ports: ShipmentPorts, spec: RunSpec) -> None:
        self._ports = ports
        self._spec = spec

    @cached_property
    def _wheel_bytes(self) -> int:
        digest = self._spec.subject_digest
        return sum(map(len, self._ports.blobs.open(digest))) if digest else 0

    @cached_property
    def _prepared(self) -> list[Prepared]:
        return self._ports.stores.reusable_results.newest_preparations(_REMEMBERED)

    def of(self, plan: CellPlan, *, payload_bytes: int, image: str, is_rented: bool) -> Shipment:
        """Return what the cell's machine will be sent, and why no machine is rented for it, if so.

        The packages are those for the Python of the platform's newest attempt, else for an assumed
        Python. May ask an index, for seconds.

        Args:
            plan: The plan of the cell.
            payload_bytes: Packed size of the payload.
            image: The name of the image of its machine; empty if it is unknown.
            is_rented: Whether the machine costs money.
        """
        spec, wheels = self._spec, self._ports.wheels
        shipment = Shipment(plan.id, payload_bytes, self._wheel_bytes, (), None, image=image)
        environment = spec.manifest.environment(plan.environment)
        if environment is None or not (environment.pip or spec.matrix.subject.source != "payload"):
            return shipment
        seen = self._seen(plan)
        interpreter, machine = seen or self._assumed(plan, image)
        shipment = replace(
            shipment, packages=environment.pip, has_index=environment.index, machine=machine
        )
        digest = spec.subject_digest
        wheel = partial(self._ports.blobs.open, digest) if digest else None
        try:
            found = wheels.sizes(
                interpreter,
                environment,
                subject=spec.matrix.subject,
                wheel=wheel,
                requires=spec.manifest.python.requires,
            )
        except WheelsError as error:
            if environment.index:
                return shipment
            if seen is None:  # the image may have packages that no index has
                return replace(shipment, unknown=dict.fromkeys(environment.pip, str(error)))
            return replace(shipment, refusal=f"{error}; calculated for {machine}")
        is_without = is_rented and has_no_nvidia(plan.platform)
        return replace(
            shipment,
            packages_bytes=found.size_bytes,
            files=len(found.packages),
            unknown=found.unknown,
            refusal=(is_without and cuda_refusal(found.packages, plan.platform.id))
            or _over_limit(shipment, found, spec),
        )

    def _seen(self, plan: CellPlan) -> tuple[Interpreter, str] | None:
        """Return the interpreter of the platform's newest machine with its description, or None."""
        platform, manifest = platform_document(plan.platform), self._spec.manifest
        for one in self._prepared:
            known = one.ingredients
            alike = (known.platform, known.environment, known.product)
            if alike == (platform, plan.environment, manifest.name):
                return one.interpreter, f"{one.interpreter.platform}, as its last machine had"
        return None

    def _assumed(self, plan: CellPlan, image: str) -> tuple[Interpreter, str]:
        """Return an assumed interpreter with its description, if no earlier machine is known."""
        torch = torch_build(plan.id, image, ()).torch
        interpreter = self._ports.wheels.assume(self._spec.manifest, plan.environment, torch=torch)
        has = ", ".join(f"{name} {version}" for name, version in interpreter.packages.items())
        return interpreter, f"{interpreter.platform} with {has or 'no packages'}, which is assumed"


def _over_limit(shipment: Shipment, found: WheelSizes, spec: RunSpec) -> str:
    limit_bytes = spec.matrix.limits.max_shipped_bytes
    total_bytes = shipment.wheel_bytes + found.size_bytes
    is_over = total_bytes > limit_bytes and not shipment.has_index
    return over_limit(total_bytes, limit_bytes) if is_over else ""


def image_name(provider: Provider, platform: Platform, place: Place) -> str:
    """Return the name of the image that would boot there; empty without one."""
    return provider.image(platform, place).name if isinstance(provider, Images) else ""


def _installs(environment: Environment, resolved: Resolution) -> str:
    if not resolved.requirements and resolved.subject is None:
        return NOTHING
    return "" if environment.index else resolved.wheels or ""
