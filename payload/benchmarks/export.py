"""Latency of exported files against the model they were made of.

Every file is verified on several inputs and shapes when it is written, its answers for the very
inputs that are timed are compared once more, and the arms take turns in one process. Exporting
is timed apart. ONNX Runtime computes on the CPU, so its baseline is the model there.
Run: `python -m benchmarks.export`.
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.export import Dim

from torchbridge import __version__, evidence, export
from torchbridge.bench import Arm, Benchmark, close_to, run_benchmark
from torchbridge.device import describe, pick_device
from use_cases.model_export import SUFFIX, VOCABULARY, Encoder, load

FORMATS = ("torch_export", "onnx", "torchscript")
THRESHOLDS = {"onnx": 0.9}  # of the model's own speed; the others are reported
SHAPES = ((1, 64), (8, 64))
TOLERANCE = 1e-4  # largest difference over the largest score


@dataclass(frozen=True, slots=True)
class Arms:
    """A loaded file, the model to compare it with, and their device."""

    file_format: str
    file: export.LoadedFile
    model: nn.Module
    device: torch.device

    def benchmark(self, shape: tuple[int, int]) -> Benchmark:
        """Return the benchmark of the file against the model, on ids of a shape."""
        ids = torch.randint(0, VOCABULARY, shape, device=self.device)
        return Benchmark(
            name=f"export/{self.file_format}/{shape[0]}x{shape[1]}",
            subject=Arm(self.file_format, lambda: self.file(ids)),
            baseline=Arm("eager", lambda: self.model(ids)),
            equal=close_to(TOLERANCE),
            device=self.device,
            params={"batch": shape[0], "sequence": shape[1], "dtype": "float32"},
            threshold=THRESHOLDS.get(self.file_format),
        )


def prepare(file_format: str, model: nn.Module, device: torch.device, folder: Path) -> Arms | None:
    """Export and load one format; None if it cannot be written here (a skipped check).

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
    """Run all formats and shapes; return 0 if all checks passed."""
    parser = argparse.ArgumentParser(description="Latency of exported files against eager")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
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
                good &= run_benchmark(arms.benchmark(shape), budget_s=budget_s).ok
    print("\nPASS" if good else "\nFAIL: a check above failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
