"""Fields that came to a document after others were stored without them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

LATER: Mapping[str, bool] = MappingProxyType({"later": True})
"""Metadata of a dataclass field: a document leaves it out where it has its default, so that what
was stored before there was such a field is written again to the same bytes."""
