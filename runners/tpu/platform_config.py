"""Platform configuration of the provider ``tpu``, checked without asking Google."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.domain.document_problems import Problem, nearest
from orchestrator.domain.machine import PlatformError, platform_problems
from orchestrator.domain.matrix import Platform, has_public_address
from runners.google.names import DEFAULT_USER, known_location, own_labels

API_QUEUE, API_NODE = "queued-resource", "node"
DEFAULT_WAIT_MINUTES, LONGEST_WAIT_MINUTES = 5, 10
_OPTIONS = ("api", "flex_start", "labels", "network", "subnetwork", "user", "wait_minutes")
CHEAPEST = "cheapest"
LARGEST_HOST = 8
"""Largest type number with one host; larger types consist of several hosts."""
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True)
class AcceleratorType:
    """One accelerator type."""

    name: str
    generation: str
    """Generation, such as ``v5e``."""
    chips: int
    runtime_version: str
    """Software version of its machines, unless the platform sets another one."""


@dataclass(frozen=True, slots=True)
class _Family:
    generation: str
    runtime_version: str
    cores_per_chip: int
    sizes: tuple[str, ...]
    """The numbers of the types with one host."""


# From v2 to v4, and in v5p, the number in the name counts cores, of which a chip has two.
# Types and runtime versions: cloud.google.com/tpu/docs/supported-tpu-configurations, /runtimes.
_FAMILIES = {
    "v2": _Family("v2", "tpu-ubuntu2204-base", 2, ("8",)),
    "v3": _Family("v3", "tpu-ubuntu2204-base", 2, ("8",)),
    "v4": _Family("v4", "tpu-ubuntu2204-base", 2, ("8",)),
    "v5litepod": _Family("v5e", "v2-alpha-tpuv5-lite", 1, ("1", "4", "8")),
    "v5p": _Family("v5p", "v2-alpha-tpuv5", 2, ("8",)),
    "v6e": _Family("v6e", "v2-alpha-tpuv6e", 1, ("1", "4", "8")),
}
_OTHER_RUNTIMES = ("tpu-vm-", "v2-nightly-")


@dataclass(frozen=True, slots=True)
class TpuPlatformConfig:
    """A platform's requirements of Cloud TPU."""

    accelerator: AcceleratorType
    markets: tuple[str, ...]
    locations: tuple[str, ...]
    """Zones and regions in order; empty for every known zone."""
    cheapest: bool
    public: bool
    queued: bool
    """Whether a queued resource is requested, instead of a plain node."""
    wait_s: int
    """Maximum seconds that a queued resource waits."""
    user: str
    network: str
    subnetwork: str
    labels: Mapping[str, str]
    """Labels that the project requires, in addition to Seatrial's."""

    @property
    def has_own_network(self) -> bool:
        """Whether another network than the project's `default` one is used."""
        return self.network.rpartition("/")[2] not in ("", "default")


def parse_platform(platform: Platform) -> TpuPlatformConfig:
    """Return the platform's requirements of Cloud TPU. Raises PlatformError."""
    options = _options(platform)
    return TpuPlatformConfig(
        accelerator=_accelerator(platform),
        markets=tuple(dict.fromkeys(platform.market or ("on-demand",))),
        locations=_locations(platform),
        cheapest=platform.locations == CHEAPEST,
        public=has_public_address(platform),
        queued=options.get("api", API_QUEUE) == API_QUEUE,
        wait_s=60 * int(options.get("wait_minutes", DEFAULT_WAIT_MINUTES)),
        user=options.get("user", DEFAULT_USER),
        network=options.get("network", ""),
        subnetwork=options.get("subnetwork", ""),
        labels=own_labels(platform),
    )


def check_platform(platform: Platform) -> tuple[Problem, ...]:
    """Return the problems of a platform, by the tables of types, runtimes and zones."""
    return platform_problems(platform, (_accelerator, _runtime_version, _locations, _options))


def _accelerator(platform: Platform) -> AcceleratorType:
    return accelerator(platform.accelerator_type, platform.runtime_version)


def _api_name(text: str) -> str:
    """Return the type with its generation as the API calls it: ``v5e`` is ``v5litepod``."""
    return re.sub(r"^v5e\b", "v5litepod", text)


def accelerator(name: str | None, runtime_version: str | None = None) -> AcceleratorType:
    """Read an accelerator type of one host. Raises PlatformError."""
    path, text = ("accelerator_type",), name or ""
    prefix, _, number = text.rpartition("-")
    family = _FAMILIES.get(prefix)
    if family is not None and number.isdigit() and int(number) > LARGEST_HOST:
        raise PlatformError(
            path,
            f"{text} has several hosts, and a cell has one machine; "
            f"ask for {prefix}-{LARGEST_HOST} or fewer",
        )
    if family is None or number not in family.sizes:
        types = [f"{one}-{size}" for one, known in _FAMILIES.items() for size in known.sizes]
        raise PlatformError(
            path, f"{text!r} is no type of one host{nearest(_api_name(text), types)}"
        )
    runtime = _known_runtime(runtime_version) or family.runtime_version
    chips = max(1, int(number) // family.cores_per_chip)
    return AcceleratorType(text, family.generation, chips, runtime)


def _runtime_version(platform: Platform) -> str:
    return _known_runtime(platform.runtime_version)


def _known_runtime(name: str | None) -> str:
    runtimes = {one.runtime_version for one in _FAMILIES.values()}
    if name and name not in runtimes and not name.startswith(_OTHER_RUNTIMES):
        raise PlatformError(
            ("runtime_version",), f"{name!r} is no TPU software version{nearest(name, runtimes)}"
        )
    return name or ""


def _locations(platform: Platform) -> tuple[str, ...]:
    if platform.locations is None or platform.locations == CHEAPEST:
        return ()
    return tuple(
        dict.fromkeys(
            known_location(text, ("locations", index))
            for index, text in enumerate(platform.locations)
        )
    )


def _options(platform: Platform) -> Mapping[str, str]:
    options = platform.options or {}
    for name in options:
        if name not in _OPTIONS:
            raise PlatformError(
                ("options", name), f"tpu has no option {name!r}{nearest(name, _OPTIONS)}"
            )
    if options.get("flex_start", "false").lower() not in ("", "false", "no"):
        raise PlatformError(
            ("options", "flex_start"),
            "the TPU client (google-cloud-tpu 1.28, API v2) can ask for no run duration, so "
            "flex-start is not available; leave it out (the deadline, and the janitor, end the "
            "machine)",
        )
    api = options.get("api", API_QUEUE)
    if api not in (API_QUEUE, API_NODE):
        raise PlatformError(("options", "api"), f"{api!r} is neither {API_QUEUE} nor {API_NODE}")
    wait = options.get("wait_minutes", str(DEFAULT_WAIT_MINUTES))
    if not wait.isdigit() or not 1 <= int(wait) <= LONGEST_WAIT_MINUTES:
        raise PlatformError(
            ("options", "wait_minutes"), f"{wait!r} is no number from 1 to {LONGEST_WAIT_MINUTES}"
        )
    user = options.get("user", DEFAULT_USER)
    if not _USER.fullmatch(user):
        raise PlatformError(("options", "user"), f"{user!r} is no user name; ubuntu is usual")
    own_labels(platform)
    return options
