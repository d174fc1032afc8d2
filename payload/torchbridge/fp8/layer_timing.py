"""A float8 layer against the plain one, timed in turns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchbridge.device import pick_device
from torchbridge.fp8.availability import PRODUCT_LIMIT
from torchbridge.fp8.formats import FP8Dtype
from torchbridge.fp8.inference import FP8InferenceLinear
from torchbridge.fp8.jobs import Job
from torchbridge.timing import Comparison, Spread, Work, compare, timed, warm_up


@torch.inference_mode()
def benchmark_fp8_layer(
    in_features: int,
    out_features: int,
    batch: int,
    *,
    iterations: int = 100,
    budget_s: float = 5.0,
    dtype: torch.dtype = torch.bfloat16,
    compiled: bool = False,
    fresh: bool = True,
    granularity: str = "tensor",
    device: torch.device | None = None,
) -> dict[str, Any]:
    """FP8InferenceLinear, its quantising included, against nn.Linear of `dtype`, x [batch, in].

    At most `iterations` pairs, at least 3, within `budget_s` seconds. Returns samples in seconds
    (`fp8_s`, `baseline_s`), `speedup` (median of the pairs, above 1 is faster), `interval`,
    `error` (relative RMS of the outputs, against float32), `path_taken`, bytes of both weights.
    With `compiled`, both arms are; `compile_s` is what their first calls took, and not timed;
    `fresh` forgets all compiled code before, so that no size is one too many.

    Raises:
        RuntimeError: the two layers do not compute the same; nothing is timed then.
    """
    if compiled and fresh:
        torch.compiler.reset()
    device = device or pick_device()
    plain = nn.Linear(in_features, out_features, device=device)
    x = torch.randn(batch, in_features, device=device)
    expected = plain(x)
    layer = FP8InferenceLinear(plain, granularity=granularity)
    plain, x = plain.to(dtype), x.to(dtype)
    subject, baseline = (_compiled(layer), _compiled(plain)) if compiled else (layer, plain)
    arms = (lambda: subject(x)), (lambda: baseline(x))
    compile_s = sum(timed(arm, device) for arm in arms) if compiled else 0.0
    error = _verified(*arms, expected)
    for arm in arms:
        warm_up(arm, device, budget_s=budget_s / 8)
    times = compare(*arms, device=device, pairs=iterations, budget_s=budget_s)
    return _figures(times, layer, plain) | {"error": error, "compile_s": compile_s}


def measured_ratio(job: Job, device: torch.device) -> float:
    """Time of the plain layer over float8's for such a job, compiled but on the CPU; a second each.

    Raises:
        RuntimeError: the two layers do not compute the same.
    """
    times = {"iterations": 20, "budget_s": 1.0, "compiled": device.type != "cpu", "fresh": False}
    how = {"dtype": job.dtype, "granularity": job.granularity, "device": device}
    return benchmark_fp8_layer(job.inner, job.columns, job.rows, **times, **how)["speedup"]


def _verified(subject: Work, baseline: Work, expected: Tensor) -> float:
    """The error of the float8 arm, if it and that of the other are small."""
    error, other = (_error(arm(), expected) for arm in (subject, baseline))
    limit = PRODUCT_LIMIT[FP8Dtype.E4M3]
    if not (error <= limit and other <= limit):
        raise RuntimeError(
            f"outputs are off by {error:.3f} (float8) and {other:.3f}, over {limit}: nothing timed"
        )
    return error


def _figures(times: Comparison, layer: FP8InferenceLinear, plain: nn.Linear) -> dict[str, Any]:
    """Times, path, and bytes of storage."""
    return {
        "fp8_s": times.subject_s,
        "baseline_s": times.baseline_s,
        "ratios": times.ratios,
        "speedup": Spread.of(times.ratios).median,
        "interval": times.interval(),
        "path_taken": layer.path_taken,
        "fallback": layer.fallback,
        "fp8_bytes": layer.weight.untyped_storage().nbytes(),
        "baseline_bytes": plain.weight.untyped_storage().nbytes(),
        "scale_bytes": layer.weight_scale.untyped_storage().nbytes(),
    }


def _compiled(layer: nn.Module) -> nn.Module:
    """Whole, or an error: a part that stays eager would be timed unseen."""
    return torch.compile(layer, fullgraph=True)


def _error(actual: Tensor, expected: Tensor) -> float:
    """Relative root mean square of the difference."""
    difference = (actual.float() - expected).square().mean() / expected.square().mean()
    return difference.sqrt().item()
