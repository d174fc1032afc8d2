"""Addresses that people are given in messages."""

from __future__ import annotations

from orchestrator.application.context import Context


def run_link(context: Context, run: str) -> str:
    """Where a run can be looked at; empty where nobody said how we are reached."""
    base = context.gate.public_url
    return f"{base}/runs/{run}" if base and run else ""


def verdict_link(context: Context, verdict: str) -> str:
    """Where a verdict can be looked at; empty where nobody said how we are reached."""
    base = context.gate.public_url
    return f"{base}/verdicts/{verdict}" if base else ""
