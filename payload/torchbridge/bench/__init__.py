"""Compare a subject with a named baseline: check equal outputs, then time both alternately.

It needs only torch and the standard library, so any payload can copy it:

    benchmark = Benchmark(
        name="norm/4096",
        subject=Arm("mine", lambda: my_norm(x)),
        baseline=Arm("eager", lambda: F.layer_norm(x, (4096,))),
        equal=close_to(1e-5),
        device=x.device,
        threshold=0.9,  # fails if the whole interval is below
        goal=1.5,  # printed, never fails
    )
    sys.exit(not run_benchmark(benchmark, budget_s=10).ok)

It prints and emits the ratio of baseline to subject time with its confidence interval, each arm's
median, quartiles, first call and peak memory, sensor readings, and fractions of the device's peaks.
`take_turns` runs a benchmark as a resident process, to compare two versions of a payload.
"""

from torchbridge.bench.benchmark import Arm, Benchmark, Equality, Work, close_to, identical
from torchbridge.bench.outcome import Outcome
from torchbridge.bench.roofline import measured_bandwidth
from torchbridge.bench.run import run_benchmark
from torchbridge.bench.sensors import Sensors, last_level_cache
from torchbridge.bench.turns import take_turns, turns
from torchbridge.timing import Ratio
