"""Where two runs ran: what differs stands on top of every comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from orchestrator.application.compare_cells import PACKAGE, STACK, Trait
from orchestrator.dashboard.labels import cut, visible
from orchestrator.dashboard.pages.compare.summary import Contrast
from orchestrator.dashboard.responses import Asked
from orchestrator.dashboard.table import Badge, Column, Row, Table, Text
from orchestrator.domain.units import plural

_ROWS = 60
_PACKAGES = 150
_CELLS_NAMED = 4
_COLUMNS = (
    Column("what", "What"),
    Column("a", "A"),
    Column("b", "B"),
    Column("verdict", "Verdict"),
    Column("platforms", "Platforms"),
)
_CALLED = {"runtime": "runtime (CUDA, HIP, XLA)", "os": "operating system"}


@dataclass(frozen=True, slots=True)
class Said:
    """The places in sentences."""

    differing: Sequence[str]
    """The parts of the stack that differ."""
    equal: str
    unknown: str
    packages: str
    """How many of them differ."""
    silent: Sequence[str]
    """Platforms of which a side told nothing."""
    is_known: bool
    """Whether both sides told anything of any place."""


def said_of_places(contrast: Contrast) -> Said:
    """What differs, what is equal, and what nobody knows."""
    traits = contrast.traits
    differing = dict.fromkeys(f"{called(one)} {one.before} → {one.after}" for one in _stack(traits))
    return Said(
        differing=[visible(cut(words, 120)) for words in differing],
        equal=_listed(traits, lambda one: one.is_known and not one.differs),
        unknown=_listed(traits, lambda one: not one.is_known and not one.is_package),
        packages=_packages(traits),
        silent=[visible(cut(f"{name} in {sides}", 80)) for name, sides in contrast.silent],
        is_known=bool(traits),
    )


def _packages(traits: Sequence[Trait]) -> str:
    """``3 packages differ, 1 package on one side only``."""
    differing = {one.what for one in traits if one.is_package and one.differs}
    half = {one.what for one in traits if one.is_package and _is_half(one)} - differing
    told = [f"{plural(len(differing), 'package')} differ{'s' * (len(differing) == 1)}"]
    if half:
        told.append(f"{plural(len(half), 'package')} on one side only")
    return ", ".join(told)


def called(trait: Trait) -> str:
    """For a person."""
    return _CALLED.get(trait.what, trait.what)


def _stack(traits: Iterable[Trait]) -> Iterable[Trait]:
    return (one for one in traits if one.differs and one.what in STACK)


def _listed(traits: Sequence[Trait], is_wanted: Callable[[Trait], bool]) -> str:
    """``torch 2.13, python 3.12.3 and 24 packages``: what is so wherever it is told."""
    other = {one.what for one in traits if not is_wanted(one)}
    values: dict[str, set[str]] = {}
    for one in traits:
        if one.what not in other:
            values.setdefault(one.what, set()).add(one.before)
    packages = [what for what in values if what.startswith(PACKAGE)]
    words = [
        visible(cut(f"{_CALLED.get(what, what)} {' '.join(some)}", 80)).strip()
        if len(some) == 1
        else _CALLED.get(what, what)
        for what, some in values.items()
        if what not in packages
    ]
    if packages:
        words.append(f"{len(packages):,} package{'s' if len(packages) > 1 else ''}")
    return ", ".join(words)


def environment_table(asked: Asked, contrast: Contrast) -> Table:
    """What differs but packages; all of it where that is asked for."""
    shown = [one for one in _shown(asked, contrast) if not one.is_package]
    return Table(
        id="environment",
        caption="What differs between the environments, but packages",
        columns=_COLUMNS,
        rows=[_row(one, contrast) for one in shown[:_ROWS]],
        empty=_empty(contrast),
        is_caption_hidden=True,
    )


def packages_table(asked: Asked, contrast: Contrast) -> Table:
    """Packages with another version; all of them where that is asked for."""
    shown = [one for one in _shown(asked, contrast) if one.is_package]
    return Table(
        id="packages",
        caption="Packages with other versions",
        columns=_COLUMNS,
        rows=[_row(one, contrast) for one in shown[:_PACKAGES]],
        empty="No package differs.",
        total=len(shown),
        is_caption_hidden=True,
    )


def _shown(asked: Asked, contrast: Contrast) -> Sequence[Trait]:
    whole = bool(asked.query.get("all"))
    return [one for one in contrast.traits if whole or one.differs or _is_half(one)]


def _is_half(trait: Trait) -> bool:
    """Known of one side only: that may hide a difference."""
    return bool(trait.before) != bool(trait.after)


def _empty(contrast: Contrast) -> str:
    if not contrast.pairs:
        return "The runs have no platform in common: choose a platform of each."
    if not contrast.traits:
        return "On no platform did both sides tell where they ran: they may differ."
    return "But for packages, nothing that is known of both differs."


def _row(trait: Trait, contrast: Contrast) -> Row:
    many = len(contrast.pairs) - len(contrast.silent)
    is_loud = trait.differs and trait.what in STACK
    word = "unknown" if not trait.is_known else "equal"
    if trait.differs:
        word = "differs" if is_loud else "changed"
    return Row(
        (
            Text(called(trait).removeprefix(PACKAGE)),
            Text(trait.before or "not known"),
            Text(trait.after or "not known"),
            Badge(word),
            _platforms(trait, many),
        ),
        tone="warn" if is_loud else "",
    )


def _platforms(trait: Trait, many: int) -> Text:
    if len(trait.cells) == many > 1:
        return Text("all")
    named = ", ".join(trait.cells[:_CELLS_NAMED])
    more = len(trait.cells) - _CELLS_NAMED
    return Text(f"{named} and {more} more" if more > 0 else named)
