"""UC5: compare one model on every backend of this machine with its float64 result on the CPU.

Every format that a device computes has a tolerance relative to the output (float32: 1e-05, on a CPU
2e-07 is reached); TF32 is off. An error of 1 % in one row of weights must be detected. The report
of 2026-01-31 compared devices with each other in float32 (largest difference 3.55e-04 on an A10G,
1.08e-03 on an L4, 0.00 of the CPU with itself). Run: `python -m use_cases.cross_backend`.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchbridge import __version__, evidence
from torchbridge.backends import Backend, create_backend, list_available_backends
from torchbridge.device import describe, pick_device
from torchbridge.validation import Report, UnifiedValidator
from use_cases.batch_sweep import banner

HIDDEN, HEADS = 256, 4
SEED = 42
# Largest difference over the largest expected magnitude; and the feature that computes it.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
FEATURE = {torch.bfloat16: "bf16", torch.float16: "fp16"}
SLIP = 1.01  # what one weight is multiplied with, to see that a difference would show


class Block(nn.Module):
    """A projection, attention and a feed-forward layer, the latter two with LayerNorm."""

    def __init__(self, hidden: int = HIDDEN, heads: int = HEADS) -> None:
        super().__init__()
        self.project = nn.Linear(hidden, hidden)
        self.attention = nn.MultiheadAttention(hidden, heads, batch_first=True)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, S, d] to [B, S, d]."""
        x = self.project(x)
        x = self.norms[0](x + self.attention(x, x, x, need_weights=False)[0])
        return self.norms[1](x + self.down(nn.functional.gelu(self.up(x))))


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference from the reference, relative to its largest magnitude."""

    most: float
    mean: float

    @classmethod
    def between(cls, actual: Tensor, expected: Tensor) -> Difference:
        """Compare in float64 on the CPU; an output that is not finite is infinitely far."""
        apart = (actual.cpu().double() - expected).abs().nan_to_num(nan=torch.inf)
        largest = expected.abs().max()
        return cls((apart.max() / largest).item(), (apart.mean() / largest).item())


def tell(report: Report, where: str) -> bool:
    """Print a report and emit its findings as checks; False if one failed."""
    print(f"{report.title}, {where}: {report.score}")
    for finding in report:
        print(f"  [{finding.status}] {finding.name}: {finding.message}")
        outcome = finding.status != "fail"
        name = f"cross_backend/{where}/{finding.name}"
        evidence.check(name, outcome, reason=finding.message, status=finding.status)
    return report.ok


def outcome(backend: Backend, model: Block, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the model's output [B, S, d] in `dtype` on the backend."""
    prepared = backend.prepare_model(copy.deepcopy(model).to(dtype), level="balanced")
    return prepared.model(backend.to_device(x.to(dtype)))


def consistent(backend: Backend, model: Block, x: Tensor) -> bool:
    """Check each format that the device computes against float64."""
    expected = copy.deepcopy(model).double()(x.double())
    good = True
    for dtype, limit in TOLERANCE.items():
        name = f"cross_backend/{backend.name}/{str(dtype).removeprefix('torch.')}"
        feature = FEATURE.get(dtype)
        if feature is not None and not backend.hardware.has(feature):
            reason = f"{backend.hardware.target} has no {feature} arithmetic"
            evidence.check(name, "skipped", reason=reason)
            print(f"| {backend.name:<7} | {dtype!s:<14} | {'skipped':>9} | {reason} |")
            continue
        found = Difference.between(outcome(backend, model, x, dtype), expected)
        fits = {"value": found.most, "unit": "relative", "tolerance": limit}
        good &= evidence.check(name, found.most <= limit, mean=found.mean, **fits)
        figures = f"{found.most:>9.2e} | {found.mean:>9.2e} | {limit:>9.0e}"
        print(f"| {backend.name:<7} | {dtype!s:<14} | {figures} |")
    return good


def slip_shows(backend: Backend, model: Block, x: Tensor) -> bool:
    """Check that the comparison detects a row of weights that is 1 % too large."""
    expected = copy.deepcopy(model).double()(x.double())
    slipped = copy.deepcopy(model)
    with torch.no_grad():
        slipped.down.weight[0].mul_(SLIP)
    found = Difference.between(outcome(backend, slipped, x, torch.float32), expected)
    limit = TOLERANCE[torch.float32]
    print(f"{backend.name}: a slip of 1 % in one row of weights shows as {found.most:.1e}")
    return evidence.check(
        f"cross_backend/{backend.name}/a_slip_would_show",
        found.most > 10 * limit,
        value=found.most,
        unit="relative",
        tolerance=10 * limit,
    )


def validate(backends: list[Backend], model: Block) -> bool:
    """Validate model, hardware and presets on every backend."""
    sample = torch.randn(4, 16, HIDDEN)
    good = True
    for backend in backends:
        validator = UnifiedValidator(device=backend.device)
        good &= tell(validator.validate_model(copy.deepcopy(model), [sample]), backend.name)
        good &= tell(validator.validate_hardware(), backend.name)
        good &= tell(validator.validate_presets(), backend.name)
    return good


@torch.no_grad()
def main() -> int:
    """Run all steps; return 0 if every check passed."""
    torch.manual_seed(SEED)
    banner(1, "Backends and model")
    backends = [create_backend(name) for name in list_available_backends()]
    model = Block().eval()
    print(f"torchbridge {__version__}, {describe(pick_device())}")
    print(f"Backends: {', '.join(f'{one.name} ({one.device})' for one in backends)}")
    print(f"Parameters: {sum(p.numel() for p in model.parameters()):,}")
    banner(2, "Model, hardware and presets")
    good = validate(backends, model)
    banner(3, "Against float64 on the CPU, input [2, 8, 256]")
    x = torch.randn(2, 8, HIDDEN, generator=torch.Generator().manual_seed(SEED))
    print("| Backend | Format         | Largest   | Mean      | Tolerance |")
    print("|---------|----------------|-----------|-----------|-----------|")
    for backend in backends:
        good &= consistent(backend, model, x)
    for backend in backends:
        good &= slip_shows(backend, model, x)
    banner(4, "Result")
    print("PASS" if good else "FAIL: a check above failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
