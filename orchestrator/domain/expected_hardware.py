"""What a machine must be, and how one that was had differs from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_STRICT = {"extra": "forbid", "use_attribute_docstrings": True}
ANY = "any"
"""Of a policy: whatever the platform's id promises, anything may be it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedHardware:
    """What a platform's machines must be; what is left out is not asked for."""

    __pydantic_config__ = _STRICT

    provider: str = ""
    """Who rents them out: ``aws``, ``gcp``, ``tpu``, ``static``, ``local``."""
    instance: str = ""
    """The instance type that the provider must say they are."""
    accelerator: str = ""
    """Words of the name that their own tools give an accelerator: ``NVIDIA L4``."""


@dataclass(frozen=True, slots=True)
class HardwareDifference:
    """One way in which a machine is not what it must be."""

    sentence: str
    is_known: bool = True
    """Whether somebody looked; else nobody can tell."""


def differences(
    wanted: ExpectedHardware, *, provider: str, instance: str, devices: Sequence[str] | None
) -> Iterator[HardwareDifference]:
    """How a machine differs from what it must be; nothing where it does not.

    Args:
        wanted: What is asked for.
        provider: Who rented it out.
        instance: Its type as the provider says; empty where it says none.
        devices: Its accelerators by vendor and name; None where nobody looked.
    """
    if wanted.provider:
        yield from _compared("its provider", provider, wanted.provider)
    if wanted.instance:
        yield from _compared("its instance type", instance, wanted.instance)
    if wanted.accelerator and devices is None:
        yield HardwareDifference("nobody looked at its accelerators", is_known=False)
    elif wanted.accelerator and not any(is_named(one, wanted.accelerator) for one in devices or ()):
        yield HardwareDifference(f"it has {', '.join(devices or ()) or 'no accelerator'}")


def hardware_sentence(wanted: ExpectedHardware) -> str:
    """``of gcp g2-standard-4 with NVIDIA L4``; empty where nothing is asked for."""
    place = " ".join(word for word in (wanted.provider, wanted.instance) if word)
    device = f"with {wanted.accelerator}" if wanted.accelerator else ""
    return " ".join(part for part in (place and f"of {place}", device) if part)


def is_named(found: str, asked: str) -> bool:
    """Whether the asked name's words stand in the found one in order: L4 is not an L40S."""
    words = iter(_words(found))
    return all(word in words for word in _words(asked))


def _words(name: str) -> list[str]:
    return name.lower().replace("-", " ").replace("_", " ").split()


def _compared(what: str, found: str, wanted: str) -> Iterator[HardwareDifference]:
    if not found:
        yield HardwareDifference(f"{what} is not known", is_known=False)
    elif found != wanted:
        yield HardwareDifference(f"{what} is {found}")
