"""The benchmark core: a subject against a named baseline, equal first, then timed in turns.

It stands on torch and the standard library alone, so that any payload can take it along:

    duel = Duel(
        name="norm/4096",
        subject=Arm("mine", lambda: my_norm(x)),
        baseline=Arm("eager", lambda: F.layer_norm(x, (4096,))),
        equal=close_to(1e-5),
        device=x.device,
        floor=0.9,  # fails when the whole interval is below
        goal=1.5,  # printed, never fails
    )
    sys.exit(not run_duel(duel, budget_s=10).ok)

What it prints and emits is the ratio of the baseline's time to the subject's with an interval that
covers what it says, both arms' medians and quartiles, first calls and peak memory apart, clocks and
heat where gauges tell them, and fractions of what the device can do where that is known. A process
that stays and measures when it is told, for comparing two versions of a payload, is `take_turns`.
"""

from torchbridge.bench.cold import Flush
from torchbridge.bench.duel import Arm, Duel, Equality, Work, close_to, identical
from torchbridge.bench.gauges import Gauges, last_level_cache
from torchbridge.bench.interval import Ratio, quad_ratios
from torchbridge.bench.outcome import Outcome, Sample
from torchbridge.bench.peak import Peak, peak_of
from torchbridge.bench.roofline import Roofline, measured_bandwidth
from torchbridge.bench.run import run_duel
from torchbridge.bench.turns import take_several_turns, take_turns, turns

__all__ = [
    "Arm",
    "Duel",
    "Equality",
    "Flush",
    "Gauges",
    "Outcome",
    "Peak",
    "Ratio",
    "Roofline",
    "Sample",
    "Work",
    "close_to",
    "identical",
    "last_level_cache",
    "measured_bandwidth",
    "peak_of",
    "quad_ratios",
    "run_duel",
    "take_several_turns",
    "take_turns",
    "turns",
]
