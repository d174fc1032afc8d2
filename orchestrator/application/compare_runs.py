"""Set a run against another one: both with their tests, and the names that tests had before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.application.context import Context
from orchestrator.application.describe_run import evidence_of
from orchestrator.domain.alias import AliasState
from orchestrator.domain.run_record import Evidence


def compared_evidence(context: Context, base: str, head: str) -> Evidence:
    """The head's evidence with the base's. Raises RunMissingError."""
    now = context.clock.now()
    older = evidence_of(context.stores, base, at=now)
    newer = evidence_of(context.stores, head, at=now)
    product = context.stores.runs.spec(head).manifest.name
    return replace(newer, base=older, renamed=_renamed(context, product))


def _renamed(context: Context, product: str) -> Mapping[str, str]:
    """By an older name of a test, the last of its names, as persons confirmed them."""
    told = context.stores.aliases.list(product=product, state=AliasState.CONFIRMED)
    step = {alias.old: alias.new for alias in told}
    return {old: _last(old, step) for old in step}


def _last(name: str, step: Mapping[str, str]) -> str:
    seen = {name}
    while (now := step.get(name)) is not None and now not in seen:
        seen.add(now)
        name = now
    return name
