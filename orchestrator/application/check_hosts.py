"""Checks of your own hosts before a launch: sign-in, interpreters and hardware. Runs no job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from orchestrator.application.context import Context
from orchestrator.domain.attestation import devices_of, mismatch, unexpected
from orchestrator.domain.launch_plan import HostCheck
from orchestrator.domain.machine import MachineError, OwnHosts, SshEndpoint
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.matrix import CellPlan, Platform

_AT_ONCE = 16


def check_hosts(
    context: Context, manifest: Manifest, plans: Iterable[CellPlan]
) -> tuple[HostCheck, ...]:
    """Sign in on every host of the cells' platforms, and look for what their jobs need.

    The agent's archive is stored in the host's work folder, as by a run; nothing else changes.
    """
    environments: dict[str, list[str]] = {}
    platforms: dict[str, Platform] = {}
    for plan in plans:
        platforms[plan.platform.id] = plan.platform
        environments.setdefault(plan.platform.id, []).append(plan.environment)

    def check(found: tuple[Platform, SshEndpoint]) -> HostCheck:
        platform, endpoint = found
        try:
            return _check(context, manifest, platform, endpoint, environments[platform.id])
        except MachineError as error:
            why = str(error).removeprefix(f"{endpoint.label}: ")
            return HostCheck(platform.id, endpoint.label, failure=why)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return tuple(threads.map(check, _hosts(context, platforms.values())))


def _hosts(
    context: Context, platforms: Iterable[Platform]
) -> Iterator[tuple[Platform, SshEndpoint]]:
    for platform in platforms:
        provider = context.provider(platform.provider)
        if isinstance(provider, OwnHosts):
            yield from ((platform, endpoint) for endpoint in provider.endpoints(platform))


def _check(
    context: Context,
    manifest: Manifest,
    platform: Platform,
    endpoint: SshEndpoint,
    environments: Sequence[str],
) -> HostCheck:
    """Check one host. Raises MachineError."""
    workspace = context.open_workspace(endpoint)
    workspace.put_agent()
    probe = workspace.probe(manifest.python.candidates)
    devices = devices_of(probe)
    seen = HostCheck(platform.id, endpoint.label, devices=tuple(one.label for one in devices))
    wrong = mismatch(platform.accelerator, devices, simulated=False) or unexpected(
        platform.expect, provider=platform.provider, instance="", devices=devices, simulated=False
    )
    if wrong:
        return replace(seen, failure=wrong)
    pythons = []
    for environment in dict.fromkeys(environments):
        choice = context.wheels.choose(probe, manifest, environment)
        if choice.interpreter is None:
            return replace(seen, failure=f"environment {environment}: {choice.reason}")
        pythons.append(f"{choice.interpreter.path} ({choice.interpreter.version})")
    return replace(seen, pythons=tuple(dict.fromkeys(pythons)))
