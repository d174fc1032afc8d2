"""What both arms of a pairing have measured, turn by turn."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from statistics import median
from typing import Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

from .events import Data
from .masking import JsonValue

SUBJECT = "subject"
BASELINE = "baseline"
_SAMPLES = 100_000

Event = Dict[str, JsonValue]


@dataclass(frozen=True)
class Measured:
    """One metric of one turn, of however many lines it was said in."""

    key: str
    data: Event
    samples: Tuple[float, ...]

    @property
    def value(self) -> float:
        """The median: one hiccup does not move it."""
        return median(self.samples)


@dataclass(frozen=True)
class Turn:
    """What an arm said in one turn, and what the machine's gauges said at its end."""

    arm: str
    number: int
    readings: Mapping[str, float]
    measured: Tuple[Measured, ...]

    def value(self, key: str) -> float:
        """Return what was measured; 0 where it was not."""
        return next((each.value for each in self.measured if each.key == key), 0.0)

    def told(self) -> Iterator[Event]:
        """Tell its metrics, each with all its samples."""
        for each in self.measured:
            yield {**each.data, "samples": list(each.samples)}


class Tally:
    """Turns, numbered over both arms in the order of time: 2n and 2n + 1 are a pair."""

    def __init__(self) -> None:
        self.turns: List[Turn] = []

    def add(self, arm: str, said: Sequence[Data], readings: Mapping[str, float]) -> None:
        """Take the next turn."""
        turn = Turn(arm, len(self.turns), dict(readings), tuple(_measured(said)))
        self.turns.append(turn)

    @property
    def pairs(self) -> int:
        """How many turns of both arms stand beside each other."""
        return len(self.turns) // 2

    def names(self, arm: str) -> Dict[str, str]:
        """By key, the names of what an arm has measured."""
        return {
            each.key: str(each.data["metric"])
            for turn in self.turns
            if turn.arm == arm
            for each in turn.measured
        }

    def log_ratios(self) -> Dict[str, List[float]]:
        """By key, the logarithms of subject over baseline, of the pairs that have a ratio."""
        shared = self.names(SUBJECT).keys() & self.names(BASELINE).keys()
        return {key: list(self._of(key)) for key in sorted(shared)}

    def _of(self, key: str) -> Iterator[float]:
        for one, other in zip(self.turns[::2], self.turns[1::2]):
            value = {turn.arm: turn.value(key) for turn in (one, other)}
            subject, baseline = value.get(SUBJECT, 0.0), value.get(BASELINE, 0.0)
            if subject > 0 and baseline > 0:
                yield math.log(subject / baseline)

    def events(self) -> Iterator[Event]:
        """Tell every turn of both arms."""
        for turn in self.turns:
            place: Event = {"arm": turn.arm, "turn": turn.number, "readings": dict(turn.readings)}
            for event in turn.told():
                yield {**event, **place}


def plain(said: Iterable[Data]) -> Iterator[Event]:
    """Tell metrics as a job does that measures alone: each once, with all of its samples."""
    for each in _measured(said):
        yield {**each.data, "samples": list(each.samples[:_SAMPLES])}


def _measured(said: Iterable[Data]) -> Iterator[Measured]:
    found: Dict[str, Tuple[Event, List[float]]] = {}
    for data in said:
        what = {name: value for name, value in data.items() if name != "samples"}
        samples = data["samples"]
        assert isinstance(samples, list)
        _, known = found.setdefault(json.dumps(what, sort_keys=True), (what, []))
        known += [float(sample) for sample in samples]
    for key, (what, known) in found.items():
        yield Measured(key, what, tuple(known))
