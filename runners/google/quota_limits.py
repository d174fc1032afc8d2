"""Limits of quotas, as Google's services tell them."""

from __future__ import annotations

UNLIMITED = 10**12
"""What stands for no limit: more than anybody takes of anything."""


def limit_of(told: float) -> int:
    """The limit that a service told: a negative one, usually -1, says that there is none."""
    return UNLIMITED if told < 0 else int(told)
