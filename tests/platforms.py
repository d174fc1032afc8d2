"""Rows of a matrix, written as the keys that a test is about."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter

from orchestrator.domain.matrix import Platform

_PLATFORM = TypeAdapter(Platform)


def as_platform(keys: Mapping[str, object] | Platform) -> Platform:
    """The platform of these keys; its id and provider are `p` where they are not given."""
    if isinstance(keys, Platform):
        return keys
    return _PLATFORM.validate_python({"id": "p", "provider": "p", **keys})
