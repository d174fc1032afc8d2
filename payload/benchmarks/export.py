"""Latency of exported files against the model they were made of.

Every file is verified on several inputs and shapes when it is written, its answers for the very
inputs that are timed are compared once more, and the arms take turns in one process. Exporting and
compiling are timed apart. ONNX Runtime computes on the CPU, so its baseline is the model there.
AOTInductor compiles for half a minute and more on a CPU: name it by --formats.
Run: `python -m benchmarks.export`.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

from torchbridge import __version__, evidence, export
from torchbridge.device import describe, pick_device
from torchbridge.export.publish import difference
from torchbridge.timing import Comparison, Spread, compare, warm_up
from use_cases.model_export import SUFFIX, VOCABULARY, Encoder, load

FORMATS = ("torch_export", "aotinductor", "onnx", "torchscript")
DEFAULT = ("torch_export", "onnx", "torchscript")
FLOORS = {"aotinductor": 0.9, "onnx": 0.9}  # of the model's own speed; the others are reported
SHAPES = ((1, 64), (8, 64))
TOLERANCE = 1e-4  # largest difference over the largest score


@dataclass(frozen=True, slots=True)
class Arms:
    """A loaded file, the model it is compared with, and both their device."""

    file_format: str
    file: export.Exported
    model: nn.Module
    device: torch.device

    def measure(self, shape: tuple[int, int], budget_s: float) -> bool:
        """Compare, warm up, time, report; False if the arms differ or the floor is missed."""
        ids = torch.randint(0, VOCABULARY, shape, device=self.device)
        name = f"export/{self.file_format}/{shape[0]}x{shape[1]}"
        error = difference(self.file(ids), self.model(ids))
        equal = evidence.check(
            f"{name}/arms_equal",
            error <= TOLERANCE,
            value=error,
            unit="relative",
            tolerance=TOLERANCE,
        )
        if not equal:
            print(f"{name}: difference {error:.1e}: nothing is timed")
            return False
        works = (lambda: self.file(ids)), (lambda: self.model(ids))
        for work in works:
            warm_up(work, self.device, budget_s=budget_s / 8)
        result = compare(*works, device=self.device, pairs=100, at_least=5, budget_s=budget_s)
        return self.report(result, name, ids)

    def report(self, result: Comparison, name: str, ids: Tensor) -> bool:
        """Print the figures, emit them as metrics; False if the floor is missed."""
        params = dict(zip(("batch", "sequence"), ids.shape, strict=True))
        params |= {"device": str(self.device), "dtype": "float32"}
        params |= {"baseline": "eager", "threads": torch.get_num_threads()}
        arms_ms = [[1e3 * s for s in arm] for arm in (result.subject_s, result.baseline_s)]
        for kind, samples in zip(("latency", "baseline_latency"), arms_ms, strict=True):
            evidence.metric(f"{name}/{kind}", samples, unit="ms", direction="lower", **params)
        evidence.metric(f"{name}/ratio", result.ratios, unit="x", direction="higher", **params)
        ours, theirs = (Spread.of(samples) for samples in arms_ms)
        ratio, (low, high) = statistics.median(result.ratios), result.interval()
        print(
            f"{name}: {ours.median:.2f} ms, eager {theirs.median:.2f} ms on {self.device},"
            f" ratio {ratio:.2f}x [{low:.2f}, {high:.2f}] in {len(result.ratios)} pairs",
            flush=True,
        )
        floor = FLOORS.get(self.file_format)
        if floor is None:
            return True
        return evidence.check(
            f"{name}/ratio_floor", high >= floor, value=ratio, unit="x", tolerance=floor
        )


def prepare(file_format: str, model: nn.Module, device: torch.device, folder: Path) -> Arms | None:
    """Export and load one format; None where it cannot be written here, said as a skipped check.

    Raises:
        ExportMismatch: the file disagrees with the model.
    """
    ids = torch.randint(0, VOCABULARY, (2, 64), device=device)
    axes = ({0: Dim("batch"), 1: Dim("sequence")},)
    path = folder / f"encoder.{SUFFIX[file_format]}"
    try:
        result = export.EXPORTERS[file_format](model, path, ids, dynamic=axes)
    except export.ExportUnavailable as missing:
        print(f"export/{file_format}: skipped, {missing}")
        evidence.check(f"export/{file_format}/arms_equal", "skipped", reason=str(missing))
        return None
    params = {"device": str(device), "size_bytes": result.size_bytes}
    name = f"export/{file_format}/export_time"
    evidence.metric(name, [result.seconds], unit="s", direction="lower", **params)
    verified = f"{result.inputs_verified} inputs of {result.shapes_verified} shapes"
    print(
        f"\n{file_format}: exported in {result.seconds:.1f} s, verified on {verified}", flush=True
    )
    where = torch.device("cpu") if file_format == "onnx" else device
    base = copy.deepcopy(model).to(where)
    return Arms(file_format, load(file_format, path, device), base, where)


@torch.no_grad()
def main(arguments: list[str] | None = None) -> int:
    """All formats and shapes; 0 if all checks passed."""
    parser = argparse.ArgumentParser(description="Latency of exported files against eager")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(DEFAULT))
    parser.add_argument("--budget", type=float, default=24.0, help="seconds of timing in all")
    options = parser.parse_args(arguments)
    device = pick_device()
    torch.manual_seed(0)
    print(f"Exported files, torchbridge {__version__}, {describe(device)}")
    model = Encoder().to(device).eval()
    budget_s = options.budget / len(options.formats) / len(SHAPES)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for file_format in options.formats:
            arms = prepare(file_format, model, device, Path(folder))
            for shape in SHAPES if arms else ():
                good &= arms.measure(shape, budget_s)
    print("\nPASS" if good else "\nFAIL: a check above failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
