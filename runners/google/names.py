"""Names, labels and locations, as Google Cloud writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
PREFIX = "seatrial-"
_LABEL = re.compile(r"[-_a-z0-9]{0,63}")
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")
_REGION = re.compile(r"[a-z]+-[a-z]+\d+")


def named(word: str) -> str:
    """``seatrial-<word>`` where that is allowed, else with what makes it so and unambiguous."""
    plain = f"{PREFIX}{word}"
    if NAME.fullmatch(plain):
        return plain
    slug = re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")[:32]
    digest = sha256(word.encode()).hexdigest()[:16]
    return "-".join(part for part in ("seatrial", slug, digest) if part)


def label(value: str) -> str:
    """A label's value: the value itself, or a digest of what labels cannot carry."""
    return value if _LABEL.fullmatch(value) else sha256(value.encode()).hexdigest()[:32]


def labels(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as labels, whose keys are allowed already."""
    return {key: label(value) for key, value in tags.items()}


def tags(found: Mapping[str, str]) -> dict[str, str]:
    """Ours among the labels of a resource."""
    return {key: value for key, value in found.items() if key.startswith(PREFIX)}


def is_zone(location: str) -> bool:
    """Whether it is written like ``us-central1-a``."""
    return _ZONE.fullmatch(location) is not None


def is_region(location: str) -> bool:
    """Whether it is written like ``us-central1``."""
    return _REGION.fullmatch(location) is not None


def region_of(zone: str) -> str:
    """The region that a zone is in."""
    return zone.rpartition("-")[0]
