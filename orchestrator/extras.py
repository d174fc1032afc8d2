"""The extras of this distribution (``seatrial[aws]``, ...): whether one is installed."""

from __future__ import annotations

from functools import cache
from importlib import invalidate_caches, metadata

from packaging.requirements import Requirement

_DISTRIBUTION = "seatrial"


class MissingExtraError(Exception):
    """A feature needs an extra that is not installed; the text is one sentence."""


def is_installed(extra: str) -> bool:
    """Whether every distribution of the extra is installed."""
    return not _absent(extra)


def require(extra: str, what: str) -> None:
    """Raise MissingExtraError unless every distribution of the extra is installed.

    Args:
        extra: Name of the extra in pyproject.toml: ``aws``.
        what: The feature that needs the extra, as the subject of a sentence.
    """
    if absent := _absent(extra):
        raise MissingExtraError(
            f"{what} needs {', '.join(absent)}, which this installation of Seatrial does not"
            f" have: install Seatrial with the extra `{extra}` (docs/installation.md)"
        )
    invalidate_caches()  # so that distributions that were installed after the start can be imported


def _absent(extra: str) -> tuple[str, ...]:
    """Return the distributions of the extra that are missing now.

    Nothing of it is cached: an extra may be installed while a controller runs.
    """
    return tuple(name for name in _distributions(extra) if not _is_there(name))


@cache
def _distributions(extra: str) -> tuple[str, ...]:
    """Return the names of the extra's distributions, sorted."""
    needed = map(Requirement, metadata.requires(_DISTRIBUTION) or ())
    return tuple(sorted(one.name for one in needed if _is_of(one, extra)))


def _is_of(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return (
        marker is not None
        and marker.evaluate({"extra": extra})
        and not marker.evaluate({"extra": ""})
    )


def _is_there(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
