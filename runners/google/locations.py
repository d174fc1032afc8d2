"""Zones and regions, told by how they are written."""

from __future__ import annotations

import re

_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")
_REGION = re.compile(r"[a-z]+-[a-z]+\d+")


def is_zone(location: str) -> bool:
    """Whether it is written like ``us-central1-a``."""
    return _ZONE.fullmatch(location) is not None


def is_region(location: str) -> bool:
    """Whether it is written like ``us-central1``."""
    return _REGION.fullmatch(location) is not None


def region_of(zone: str) -> str:
    """The region that a zone is in."""
    return zone.rpartition("-")[0]
