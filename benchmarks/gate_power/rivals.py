"""Rules of other tools for nightly benchmarks on fresh machines, over the same turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import mannwhitneyu

from benchmarks.gate_power.noise import Noise, Values

BETWEEN_MACHINES = 0.015
"""Standard deviation between rented machines of one kind."""
HISTORY = 20
TURNS = 20


@dataclass(frozen=True, slots=True)
class Nights:
    """Input of the rules over history: logarithms, by benchmark."""

    tonight: Values
    """Turns of the subject."""
    last_night: Values
    """Turns of the baseline, on last night's machine."""
    history: Values
    """Medians of earlier nights."""


def nights(rng: np.random.Generator, noise: Noise, size: float, subject: Values) -> Nights:
    """Return the subject's turns on a machine of its own, with the history that rules need."""
    count = len(subject)
    machines = BETWEEN_MACHINES * rng.standard_normal((count, HISTORY + 1))
    before = noise(rng, (count, HISTORY, TURNS), size) + machines[:, :HISTORY, np.newaxis]
    return Nights(
        tonight=subject[:, :TURNS] + machines[:, HISTORY:],
        last_night=before[:, -1],
        history=np.median(before, axis=2),
    )


def _seven_percent(seen: Nights) -> Values:
    """Return alarms of the plain rule: 7 % above last night's median."""
    return np.median(seen.tonight, axis=1) - np.median(seen.last_night, axis=1) > np.log(1.07)


def _z_of_five(seen: Nights) -> Values:
    """Return alarms of: five standard deviations above the mean of the last twenty nights."""
    spread = seen.history.std(axis=1, ddof=1)
    return np.median(seen.tonight, axis=1) - seen.history.mean(axis=1) > 5 * spread


def _mann_whitney(seen: Nights) -> Values:
    """Return alarms of the Mann-Whitney test of two machines' turns; p <= 0.01."""
    found = mannwhitneyu(
        seen.tonight, seen.last_night, alternative="greater", axis=1, method="asymptotic"
    )
    return found.pvalue <= 0.01


RIVALS: Mapping[str, Callable[[Nights], Values]] = {
    "7 % rule": _seven_percent,
    "z = 5 rule": _z_of_five,
    "Mann-Whitney": _mann_whitney,
}
