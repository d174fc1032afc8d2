"""The registry of providers, which imports none of them.

Other distributions add providers through entry points of the group ``seatrial.providers``:
``name = "package.module:Class"``, with a `ProviderTraits` named ``TRAITS`` in the same module.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import cast

from orchestrator.domain.cloud_account import AccountSetup
from orchestrator.domain.machine import ConfigError, Extent, Provider, ProviderTraits
from orchestrator.extras import MissingExtraError, require
from runners.provider_context import ProviderContext

_INGRESS = (
    "SEATRIAL_INGRESS_CIDR is not set either, which machines with a public address need;"
    " credentials are looked for once the extra is installed"
)
GROUP = "seatrial.providers"
BUILT_IN: Mapping[str, str] = {
    "aws": "runners.aws:AwsProvider",
    "fake": "runners.fake:FakeProvider",
    "gcp": "runners.gcp:GcpProvider",
    "local": "runners.local:LocalProvider",
    "static": "runners.static:StaticProvider",
    "tpu": "runners.tpu:TpuProvider",
}
ACCOUNTS: Mapping[str, str] = {
    "aws": "runners.aws.setup.stack:AwsAccountSetup",
    "gcp": "runners.google.setup.project:GoogleAccountSetup",
}
"""Clouds whose account can be set up and checked."""


def names() -> tuple[str, ...]:
    """Return every provider's name, sorted."""
    return tuple(sorted(_known()))


def traits(name: str) -> ProviderTraits:
    """Return the properties of a provider, without loading it. Raises ConfigError."""
    module, _ = _locate(name)
    found = getattr(module, "TRAITS", None)
    if not isinstance(found, ProviderTraits) or found.name != name:
        raise ConfigError(f"provider {name}: {module.__name__} has no TRAITS of that name")
    return found


def load(name: str, context: ProviderContext) -> Provider:
    """Create a provider. Raises ConfigError for an unknown, broken or not installed one."""
    module, attribute = _locate(name)
    _require_extra(name, context.settings)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise ConfigError(f"provider {name}: {module.__name__} has no {attribute}")
    return cast("Provider", factory(context))


def account_setup(name: str, settings: Mapping[str, str], templates: Path) -> AccountSetup:
    """Return the setup and checks of a user's cloud account. Raises ConfigError.

    Args:
        name: ``aws`` or ``gcp``.
        settings: The settings, as in `ProviderContext`.
        templates: The folder that holds ``cloud_account/``.
    """
    if name not in ACCOUNTS:
        raise ConfigError(f"there is no cloud {name!r} to set up: name {' or '.join(ACCOUNTS)}")
    _require_extra(name)
    module, _, attribute = ACCOUNTS[name].partition(":")
    return cast("AccountSetup", getattr(import_module(module), attribute)(settings, templates))


def _require_extra(name: str, settings: Mapping[str, str] | None = None) -> None:
    """Raise ConfigError if the client libraries of a provider are not installed.

    With the settings for machines the text also names what these lack.
    """
    extra = traits(name).extra
    try:
        if extra:
            require(extra, f"provider {name}")
    except MissingExtraError as error:
        is_closed = settings is not None and not settings.get("ingress_cidr")
        more = f"; {_INGRESS}" if is_closed else ""
        raise ConfigError(f"{error}{more}", extent=Extent.PROJECT) from error


@cache
def _known() -> Mapping[str, str]:
    added = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    taken = sorted(added.keys() & BUILT_IN.keys())
    if taken:
        raise ConfigError(
            f"an installed distribution registers a provider {taken[0]!r} in {GROUP}, a name that "
            f"is built in ({added[taken[0]]}); remove it or rename its entry point"
        )
    return {**BUILT_IN, **added}


def _locate(name: str) -> tuple[ModuleType, str]:
    target = _known().get(name)
    if target is None:
        nearest = get_close_matches(name, names(), n=1, cutoff=0.0)
        raise ConfigError(
            f"there is no provider {name!r}; did you mean {nearest[0]!r}? "
            f"There are {', '.join(names())}"
        )
    module, _, attribute = target.partition(":")
    try:
        return import_module(module), attribute
    except ImportError as error:
        raise ConfigError(f"provider {name} cannot be loaded from {module}: {error}") from error
