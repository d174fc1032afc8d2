"""Tests under other names: suggest which are the same, and write down what a person says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from orchestrator.application.context import Context
from orchestrator.application.describe_run import find_run
from orchestrator.domain.alias import Alias, AliasState, KnownTest
from orchestrator.domain.identity import (
    NameChanges,
    Suggestion,
    compare_names,
    job_family,
    resolve,
)


class OtherProductError(ValueError):
    """The runs are of two products: none of their tests are the same."""


@dataclass(frozen=True, slots=True)
class FamilyChanges:
    """What became of the tests of one family of jobs."""

    family: str
    changes: NameChanges


@dataclass(frozen=True, slots=True)
class Matching:
    """What became of the tests of an older run in a newer one."""

    old_run: str
    new_run: str
    families: tuple[FamilyChanges, ...]
    """Those of jobs that both runs have."""
    suggestions: tuple[Alias, ...]
    """Stored; a person confirms or rejects them."""


def suggest_aliases(context: Context, old_run: str, new_run: str) -> Matching:
    """Compare the tests of two runs, and store what may be the same test under another name.

    Raises:
        RunMissingError: There is no such run.
        OtherProductError: They are of two products.
    """
    tests = {run: _by_family(context, run) for run in (old_run, new_run)}
    both = sorted(set(tests[old_run]) & set(tests[new_run]))
    decided = context.stores.aliases.list(product=_product(context, old_run))
    families, found = [], list[Alias]()
    for family in both:
        changes, aliases = _compare(
            context, tests[old_run][family], tests[new_run][family], decided
        )
        families.append(FamilyChanges(family, changes))
        found += aliases
    context.stores.aliases.suggest(found)
    pairs = {(one.old_test, one.new_test) for one in found}
    stored = context.stores.aliases.list(product=_product(context, old_run))
    mine = tuple(one for one in stored if (one.old_test, one.new_test) in pairs)
    return Matching(old_run, new_run, tuple(families), mine)


def _product(context: Context, run_id: str) -> str:
    return context.stores.runs.spec(run_id).manifest.name


def _by_family(context: Context, run_id: str) -> dict[str, list[KnownTest]]:
    find_run(context.stores, run_id)
    families: dict[str, list[KnownTest]] = {}
    for test in context.stores.tests.of_run(run_id):
        families.setdefault(job_family(test.job), []).append(test)
    return families


def _compare(
    context: Context,
    before: Iterable[KnownTest],
    after: Iterable[KnownTest],
    decided: Iterable[Alias],
) -> tuple[NameChanges, list[Alias]]:
    old = {test.nodeid: test for test in before}
    new = {test.nodeid: test for test in after}
    changes = compare_names(
        old,
        new,
        context.similarity.names,
        confirmed=_confirmed(context, old, new),
        rejected={(a.old, a.new) for a in decided if a.state is AliasState.REJECTED},
    )
    now = context.clock.now()
    return changes, [_alias(one, old[one.old], new[one.new], now) for one in changes.suggestions]


def _confirmed(
    context: Context, old: Mapping[str, KnownTest], new: Mapping[str, KnownTest]
) -> dict[str, str]:
    """By older name the newer one, through any number of changes."""
    aliases = context.stores.aliases.confirmed()
    names = {test.id: name for name, test in new.items()}
    newest = {name: resolve(test.id, aliases) for name, test in old.items()}
    return {name: names[test] for name, test in newest.items() if test in names and name not in new}


def _alias(one: Suggestion, old: KnownTest, new: KnownTest, now: datetime) -> Alias:
    return Alias(
        id=0,
        product=new.product,
        job=new.job,
        old_test=old.id,
        old=one.old,
        new_test=new.id,
        new=one.new,
        change=one.change,
        similarity=one.similarity,
        state=AliasState.SUGGESTED,
        suggested_at=now,
    )


def decide_alias(context: Context, alias_id: int, state: AliasState, *, by: str) -> Alias | None:
    """Write down what a person said; SUGGESTED takes back what was said. None: there is none.

    Raises AliasConflictError where it cannot stand beside what was confirmed before.
    """
    at = None if state is AliasState.SUGGESTED else context.clock.now()
    who = "" if state is AliasState.SUGGESTED else by
    return context.stores.aliases.decide(alias_id, state, at=at, by=who)
