"""Platform configuration of the provider ``tpu``, checked without asking Google."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from orchestrator.domain.machine import ConfigError
from orchestrator.domain.matrix import Platform
from runners.google.account import DEFAULT_USER
from runners.tpu.accelerators import Accelerator, accelerator

API_QUEUE, API_NODE = "queued-resource", "node"
DEFAULT_WAIT_MINUTES, LONGEST_WAIT_MINUTES = 5, 10
_OPTIONS = ("api", "flex_start", "network", "subnetwork", "user", "wait_minutes")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True)
class PlatformConfig:
    """What a platform asks of Cloud TPU."""

    accelerator: Accelerator
    markets: tuple[str, ...]
    locations: tuple[str, ...]
    """Zones and regions in order; empty means every zone that is known."""
    cheapest: bool
    public: bool
    queued: bool
    """By a queued resource; else as a plain node."""
    wait_s: int
    """How long a queued resource may wait before it gives up."""
    user: str
    network: str
    subnetwork: str

    @property
    def has_own_network(self) -> bool:
        """Whether a network is named that is not the project's `default` one."""
        return self.network.rpartition("/")[2] not in ("", "default")


def parse_platform(platform: Platform) -> PlatformConfig:
    """Return what the platform asks of Cloud TPU. Raises ConfigError, naming the key."""
    options = _options(platform.options or {})
    cheapest = platform.locations == "cheapest"
    user = options.get("user", DEFAULT_USER)
    if not _USER.fullmatch(user):
        raise ConfigError(f"options.user: {user!r} is no user name; ubuntu is usual")
    return PlatformConfig(
        accelerator=accelerator(platform.accelerator_type, platform.runtime_version),
        markets=tuple(dict.fromkeys(platform.market or ("on-demand",))),
        locations=() if cheapest else tuple(dict.fromkeys(platform.locations or ())),
        cheapest=cheapest,
        public=platform.connect != "private",
        queued=_is_queued(options),
        wait_s=_wait_s(options),
        user=user,
        network=options.get("network", ""),
        subnetwork=options.get("subnetwork", ""),
    )


def _options(options: Mapping[str, str]) -> Mapping[str, str]:
    for name in options:
        if name not in _OPTIONS:
            (nearest,) = get_close_matches(name, _OPTIONS, n=1, cutoff=0.0)
            raise ConfigError(f"options.{name}: unknown to tpu; did you mean {nearest}?")
    if options.get("flex_start", "false").lower() not in ("", "false", "no"):
        raise ConfigError(
            "options.flex_start: the TPU client (google-cloud-tpu 1.28, API v2) can ask for no run "
            "duration, so flex-start is not to be had; leave it out (the deadline, and the "
            "janitor, end the machine)"
        )
    return options


def _is_queued(options: Mapping[str, str]) -> bool:
    chosen = options.get("api", API_QUEUE)
    if chosen not in (API_QUEUE, API_NODE):
        raise ConfigError(f"options.api: {chosen!r} is neither {API_QUEUE} nor {API_NODE}")
    return chosen == API_QUEUE


def _wait_s(options: Mapping[str, str]) -> int:
    given = options.get("wait_minutes", str(DEFAULT_WAIT_MINUTES))
    if not given.isdigit() or not 1 <= int(given) <= LONGEST_WAIT_MINUTES:
        raise ConfigError(
            f"options.wait_minutes: {given!r} is no number from 1 to {LONGEST_WAIT_MINUTES}"
        )
    return int(given) * 60
