"""Policies, verdicts, waivers and approvals. Nothing of it is ever changed."""

from __future__ import annotations

from typing import Protocol


class GateStore(Protocol):
    """Policies, verdicts, waivers and approvals. Nothing of it is ever changed.

    Each method is one transaction.
    """
