"""UC1: export a transformer encoder in every format, verify each re-loaded file, and time it.

A file is kept only if it computes what the model computes, on nine inputs of three shapes; each
format has its size, export time, largest difference and latency. torch's own exporters write the
files, so nothing is faster; the verification costs seconds. The report of 2026-01-31 has sizes
(TorchScript 12.4 MB in 0.66 s, ONNX 14.5 MB in 5.56 s) and one latency (0.86 ms, A10G). Run:
`python -m use_cases.model_export`; exits 1 if a file disagrees with the model. A format whose
package is missing is a skipped check that names it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

from torchbridge import __version__, evidence, export
from torchbridge.device import describe, pick_device
from torchbridge.hardware import probe
from torchbridge.timing import Spread, timed, warm_up

VOCABULARY, WIDTH, HEADS, LAYERS, HIDDEN = 5000, 256, 4, 2, 512
PARAMETERS = 3_619_208
ITERATIONS = 30
SUFFIX = {"torch_export": "pt2", "onnx": "onnx", "torchscript": "pt"}


class Encoder(nn.Module):
    """Encoder from token ids [B, S] to scores [B, S, vocabulary]."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        """Map [B, S] to [B, S, vocabulary]."""
        return self.head(self.encoder(self.tokens(ids)))


def banner(number: int, title: str) -> None:
    """Announce a step."""
    print(f"\n{'=' * 72}\nSTEP {number}: {title}\n{'=' * 72}", flush=True)


@torch.no_grad()
def latencies_ms(run, ids: Tensor) -> list[float]:
    """Time each of `ITERATIONS` synchronised calls after warm-up, in ms."""
    warm_up(lambda: run(ids), ids.device, budget_s=2.0)
    return [1e3 * timed(lambda: run(ids), ids.device) for _ in range(ITERATIONS)]


def load(file_format: str, path: Path, device: torch.device) -> export.LoadedFile:
    """Load a file as its user would: SafeTensors into a model with other weights."""
    if file_format == "safetensors":
        return export.load_safetensors(path, Encoder().to(device).eval())
    return getattr(export, f"load_{file_format}")(path)


def attempt(file_format: str, model: nn.Module, ids: Tensor, folder: Path) -> bool:
    """Export, verify, time and report one format; False if it disagrees with the model."""
    path = folder / f"encoder.{SUFFIX.get(file_format, file_format)}"
    axes = ({0: Dim("batch"), 1: Dim("sequence")},)
    name = f"model_export/{file_format}"
    print(f"| {file_format:<12} |", end=" ", flush=True)
    try:
        result = export.EXPORTERS[file_format](model, path, ids, dynamic=axes)
    except export.ExportUnavailable as missing:
        print(f"skipped: {missing}")
        return evidence.check(f"{name}/equals_model", "skipped", reason=str(missing))
    except export.ExportMismatch as mismatch:
        print(f"FAILED: {mismatch}")
        return evidence.check(f"{name}/equals_model", False, reason=str(mismatch))
    inputs = ids.cpu() if file_format == "onnx" else ids  # ONNX Runtime computes on the CPU
    samples = latencies_ms(load(file_format, path, ids.device), inputs)
    report(result, samples, inputs.device)
    worst = max(result.verified, key=lambda one: one.max_difference)
    return evidence.check(
        f"{name}/equals_model",
        True,
        value=worst.max_difference,
        unit="relative",
        tolerance=worst.tolerance,
        inputs=result.inputs_verified,
        shapes=result.shapes_verified,
    )


def report(result: export.ExportResult, samples: list[float], device: torch.device) -> None:
    """Print one row of the table and emit the format's metrics."""
    name, params = f"model_export/{result.format}", {"device": str(device), "dtype": "float32"}
    megabytes = result.size_bytes / 1e6
    evidence.metric(f"{name}/size", [megabytes], unit="MB", direction="lower", **params)
    evidence.metric(f"{name}/seconds", [result.seconds], unit="s", direction="lower", **params)
    evidence.metric(f"{name}/latency", samples, unit="ms", direction="lower", **params)
    print(
        f"{megabytes:>7.2f} MB | {result.seconds:>6.2f} s |"
        f" {result.inputs_verified:>2} x {result.shapes_verified} shapes |"
        f" {result.max_difference:>8.1e} | {Spread.from_samples(samples).median:>8.2f} ms |",
        flush=True,
    )


def baseline(model: nn.Module, ids: Tensor) -> None:
    """Time the model itself."""
    samples = latencies_ms(model, ids)
    spread = Spread.from_samples(samples)
    params = {"device": str(ids.device), "dtype": "float32"}
    params |= dict(zip(("batch", "sequence"), ids.shape, strict=True))
    evidence.metric("model_export/baseline_ms", samples, unit="ms", direction="lower", **params)
    quartiles = f"quartiles {spread.low:.2f} to {spread.high:.2f}"
    print(f"Baseline: {spread.median:.2f} ms for ids {list(ids.shape)}, {quartiles}")


def main(arguments: list[str] | None = None) -> int:
    """Run all steps; return 0 if every written file agrees with the model."""
    parser = argparse.ArgumentParser(description="UC1: export formats of a transformer encoder")
    known = list(export.EXPORTERS)
    parser.add_argument("--formats", nargs="+", choices=known, default=known)
    options = parser.parse_args(arguments)
    device = pick_device()
    torch.manual_seed(42)
    banner(1, "Environment and model")
    model = Encoder().to(device).eval()
    size = sum(p.numel() for p in model.parameters())
    print(f"torchbridge {__version__}, backend {probe(device).vendor}, {describe(device)}")
    print(f"Parameters: {size:,} ({4 * size / 1e6:.1f} MB)")
    good = evidence.check(
        "model_export/parameters", size == PARAMETERS, value=size, tolerance=0, unit="parameters"
    )
    banner(2, "Baseline latency of the model itself")
    ids = torch.randint(0, VOCABULARY, (1, 64), device=device)
    baseline(model, ids)
    banner(3, "Export, load again, compare on several inputs and shapes, time")
    print("| Format       | Size       | Export   | Verified on   | Max diff | Latency     |")
    print("|--------------|------------|----------|---------------|----------|-------------|")
    with tempfile.TemporaryDirectory() as folder:
        for file_format in options.formats:
            good &= attempt(file_format, model, ids, Path(folder))
    banner(4, "Result")
    print("PASS" if good else "FAIL: a check above failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
