"""UC3: latency and throughput of a small model over batch sizes, with every call synchronised.

Each batch must equal its samples one by one, and the latencies must explain the loop's time. The
report of 2026-01-31 has 0.118, 0.110, 0.109 and 0.110 ms for batches of 1, 8, 32 and 64 on an A10G:
the same for all, as launch times without synchronisation are. No speed-up is claimed. Run: `python
-m use_cases.batch_sweep`.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchbridge import __version__, evidence
from torchbridge.device import describe, pick_device, synchronise
from torchbridge.numbers import relative_error
from torchbridge.timing import Spread, timed, warm_up

BATCHES = (1, 8, 32, 64)
ITERATIONS = 50
TOLERANCE = 1e-5  # relative error of a batch against its samples one by one
LEAST_SHARE = 0.5  # of the loop's wall time that the single latencies must explain


class Block(nn.Module):
    """Feed-forward block 512 -> 2048 -> GELU -> 512 with LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(512, 2048)
        self.down = nn.Linear(2048, 512)
        self.norm = nn.LayerNorm(512)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, 512] to [B, 512]."""
        return self.norm(self.down(nn.functional.gelu(self.up(x))))


@dataclass(frozen=True, slots=True)
class Row:
    """One batch size: latencies of single calls, and the wall time of the loop around them."""

    batch: int
    latencies_s: tuple[float, ...]
    wall_s: float

    @property
    def share(self) -> float:
        """Share of the wall time that the latencies explain; low if calls are not synchronised."""
        return sum(self.latencies_s) / self.wall_s


def banner(number: int, title: str) -> None:
    """Announce a step."""
    print(f"\n{'=' * 60}\nSTEP {number}: {title}\n{'=' * 60}", flush=True)


def verify(model: nn.Module, device: torch.device) -> bool:
    """Check that each batch equals its samples one by one, and float64 on the CPU."""
    good = True
    reference = Block().double()
    reference.load_state_dict({k: v.cpu().double() for k, v in model.state_dict().items()})
    for batch in BATCHES:
        x = torch.randn(batch, 512, device=device)
        whole = model(x).cpu().double()
        singly = torch.cat([model(sample[None]) for sample in x]).cpu().double()
        for name, other in (("per_sample", singly), ("float64", reference(x.cpu().double()))):
            error = relative_error(whole, other)
            good &= evidence.check(
                f"batch_sweep/{batch}/equals_{name}",
                error <= TOLERANCE,
                value=error,
                unit="relative",
                tolerance=TOLERANCE,
            )
            print(f"Batch {batch:>3}: relative error {error:.1e} against {name}")
    return good


def measure(model: nn.Module, batch: int, device: torch.device) -> Row:
    """Warm up, then time each of `ITERATIONS` calls and the loop as a whole."""
    x = torch.randn(batch, 512, device=device)
    warm_up(lambda: model(x), device, budget_s=1.0)
    synchronise(device)
    start = time.perf_counter()
    latencies_s = tuple(timed(lambda: model(x), device) for _ in range(ITERATIONS))
    synchronise(device)
    return Row(batch, latencies_s, time.perf_counter() - start)


def report(row: Row, device: torch.device) -> bool:
    """Print a row, emit its metrics; False if its latencies do not explain its wall time."""
    latencies_ms = [1e3 * s for s in row.latencies_s]
    spread = Spread.from_samples(latencies_ms)
    params = {"batch": row.batch, "device": str(device), "dtype": "float32"}
    name = f"batch_sweep/{row.batch}"
    evidence.metric(f"{name}/latency", latencies_ms, unit="ms", direction="lower", **params)
    throughputs = [row.batch / s for s in row.latencies_s]
    evidence.metric(f"{name}/throughput", throughputs, unit="items/s", direction="higher", **params)
    quartiles = f"{spread.low:.3f} to {spread.high:.3f}"
    per_second = 1e3 * row.batch / spread.median
    print(
        f"| {row.batch:>5} | {spread.median:>8.3f} ms | {quartiles:>16} | {per_second:>11,.0f}/s |"
    )
    return evidence.check(
        f"{name}/latencies_explain_wall_time",
        LEAST_SHARE <= row.share <= 1.0,
        value=row.share,
        unit="share",
        tolerance=LEAST_SHARE,
    )


@torch.inference_mode()
def main() -> int:
    """Run all steps; return 0 if every check passed."""
    device = pick_device()
    torch.manual_seed(42)
    banner(1, "Environment and model")
    model = Block().to(device).eval()
    print(f"torchbridge {__version__}, {describe(device)}")
    print(f"Parameters: {sum(p.numel() for p in model.parameters()):,}")
    banner(2, "Batches give the same numbers as single samples")
    good = verify(model, device)
    banner(3, f"Batch size sweep, {ITERATIONS} iterations each")
    print("| Batch | Latency     | Quartiles (ms)   | Throughput    |")
    print("|-------|-------------|------------------|---------------|")
    for batch in BATCHES:
        good &= report(measure(model, batch, device), device)
    banner(4, "Result")
    print("PASS" if good else "FAIL: a check above failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
