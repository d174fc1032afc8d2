"""Check the speed-up thresholds on the CPU: each of our ways against the usual alternative.

Outputs are compared before timing, and arms run alternately. A threshold is reached if the median
ratio is at least it (of a level: the interval's lower end). Rows of the strongest baselines have no
threshold: they are ahead, even or lost. Prints one line of figures at the end and exits with 1 if a
threshold is missed. Run: `python -m benchmarks.cpu_speedup_thresholds`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch

from benchmarks import cpu_comparisons
from torchbridge import __version__, evidence
from torchbridge.bench import Benchmark, Ratio, run_benchmark
from torchbridge.device import describe


@dataclass(frozen=True, slots=True)
class Row:
    """A benchmark and the threshold for its ratio.

    `make` returns the benchmark, or the number of operators if both arms run the same ones.
    `bound`: the interval's lower end must reach the threshold, not only the median. Without a
    threshold the result is only shown.
    """

    name: str
    make: Callable[[], Benchmark | int]
    threshold: float | None
    seconds: float
    bound: bool = False
    precision: float = 0.03


def rows(device: torch.device) -> Iterator[Row]:
    """Yield the timed rows with thresholds; their modules are imported when they run."""
    for hidden in (512, 1024):
        for baseline, threshold in (("dense_all_experts", 2.8), ("mask_loop", 0.9)):
            benchmark = partial(cpu_comparisons.moe_benchmark, hidden, baseline, device)
            yield Row(f"moe/{hidden}/{baseline}", benchmark, threshold, 8.0)
    yield Row("gpt2/hf_kv_loop", partial(cpu_comparisons.gpt2_benchmark, device), 1.10, 45.0)
    yield Row("training/plain_loop", partial(cpu_comparisons.training_benchmark, device), 1.3, 15.0)
    yield Row("attention/window_128", partial(cpu_comparisons.window_benchmark, device), 2.5, 15.0)


def strongest_rows(device: torch.device) -> Iterator[Row]:
    """Yield rows against the best alternatives, without thresholds."""
    for hidden in (512, 1024):
        for opponent in ("hf_grouped_mm", "hf_eager", "torch_grouped_mm"):
            benchmark = partial(cpu_comparisons.strong_moe_benchmark, hidden, opponent, device)
            yield Row(f"strong/moe/{hidden}/{opponent}", benchmark, None, 8.0)
    for opponent in ("torch", "plain"):
        benchmark = partial(cpu_comparisons.loss_benchmark, opponent, device)
        yield Row(f"strong/linear_cross_entropy/{opponent}", benchmark, None, 12.0)
    benchmark = partial(cpu_comparisons.generate_benchmark, device)
    yield Row("strong/gpt2/hf_generate", benchmark, None, 30.0)
    for opponent in ("torchao_int8", "ours_int8"):
        benchmark = partial(cpu_comparisons.narrow_benchmark, opponent, device)
        yield Row(f"strong/decode/{opponent}", benchmark, None, 20.0)


def level_rows(device: torch.device) -> Iterator[Row]:
    """Yield a row per model and level: no level may be slower than eager mode."""
    for model in cpu_comparisons.models():
        for level, made in cpu_comparisons.level_benchmarks(device, model):
            name = f"levels/{model}/{level}"
            yield Row(name, partial(_as_it_is, made), 0.97, 7.0, bound=True, precision=0.02)


def _as_it_is(made: Benchmark | int) -> Benchmark | int:
    return made


def judge(row: Row) -> str:
    """Run one row and print its line; return "kept", "missed" or "skipped". Errors are "missed"."""
    try:
        return _judge(row)
    except cpu_comparisons.NotHereError as reason:
        evidence.check(f"thresholds/{row.name}/threshold", "skipped", reason=str(reason))
        return _say(row, "skipped", str(reason))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        evidence.check(f"thresholds/{row.name}/threshold", False, reason=reason)
        return _say(row, "MISSED", reason)


def _judge(row: Row) -> str:
    benchmark = row.make()
    if isinstance(benchmark, int):
        evidence.check(
            f"thresholds/{row.name}/threshold", True, value=1.0, unit="x", tolerance=row.threshold
        )
        return _say(row, "kept", f"runs the same {benchmark} operators: 1x, nothing to time")
    limits = {"pairs": 400, "at_least": 12, "budget_s": row.seconds, "precision": row.precision}
    outcome = run_benchmark(benchmark, **limits, quiet=True)
    if not outcome.samples:
        error = f"{outcome.equality.error:.1e} {outcome.equality.unit}"
        return _say(row, "MISSED", f"the arms differ by {error}, nothing is timed")
    return judge_ratio(row, outcome.ratio(), benchmark.baseline.name)


def judge_ratio(row: Row, ratio: Ratio, baseline: str) -> str:
    """Judge by the median, or by the interval's lower end if `row.bound`."""
    if row.threshold is None:
        word = "LOST" if ratio.high < 1 else "ahead" if ratio.low > 1 else "even"
        return _say(
            row, word, f"{ratio} of {baseline}, {ratio.confidence:.1%} of {ratio.quads} quads"
        )
    kept = (ratio.low if row.bound else ratio.median) >= row.threshold
    how = "by the lower end" if row.bound else "by the median"
    if kept and not row.bound:
        how += f", the whole interval {'too' if ratio.low >= row.threshold else 'is not above'}"
    value = ratio.low if row.bound else ratio.median
    evidence.check(
        f"thresholds/{row.name}/threshold", kept, value=value, unit="x", tolerance=row.threshold
    )
    words = f"{ratio} of {baseline}, {ratio.confidence:.1%} of {ratio.quads} quads; {how}"
    return _say(row, "kept" if kept else "MISSED", words)


def _say(row: Row, word: str, words: str) -> str:
    threshold = "no threshold   " if row.threshold is None else f"threshold {row.threshold:>4g}x"
    print(f"{row.name:<36} {threshold} {word:<7} {words}", flush=True)
    return word.lower()


def judge_storage() -> str:
    """Check that float8 takes half of bfloat16's bytes, without the scales."""
    half, scales = cpu_comparisons.fp8_storage()
    kept = half == 0.5
    evidence.check("thresholds/fp8/storage", kept, value=half, unit="x", tolerance=0.5)
    row = Row("fp8/storage", int, 0.5, 0.0)
    words = f"exactly: {half:g}x of bfloat16's bytes, and {scales:.4%} of scales"
    return _say(row, "kept" if kept else "MISSED", words)


def main(arguments: list[str] | None = None) -> int:
    """Run all rows; return 0 if no threshold is missed."""
    parser = argparse.ArgumentParser(
        description="The thresholds on the CPU, in one interleaved run"
    )
    parser.add_argument("--only", default="", help="rows whose name begins so")
    options = parser.parse_args(arguments)
    device, start = torch.device("cpu"), time.monotonic()
    print(f"Floors, torchbridge {__version__}, {describe(device)}")
    verdicts: dict[str, str] = {}
    with torch.no_grad():
        levels = level_rows(device) if _asked("levels", options.only) else ()
        for row in chain(rows(device), strongest_rows(device), levels):
            if row.name.startswith(options.only):
                verdicts[row.name] = judge(row)
    if "fp8/storage".startswith(options.only):
        verdicts["fp8/storage"] = judge_storage()
    words = ("kept", "missed", "skipped", "ahead", "even", "lost")
    counted = {word: list(verdicts.values()).count(word) for word in words}
    figures = ", ".join(f"{count} {word}" for word, count in counted.items())
    print(f"thresholds: {figures} of {len(verdicts)}; {time.monotonic() - start:.0f} s")
    return 1 if counted["missed"] or not verdicts else 0


def _asked(group: str, only: str) -> bool:
    """Return whether rows of the group may be wanted."""
    return only.startswith(group) or group.startswith(only)


if __name__ == "__main__":
    sys.exit(main())
