"""Check by five trials whether this machine can do what a configuration requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torchbridge.attention import Path, attend, create_pattern
from torchbridge.config import AttentionConfig, AttentionPatterns, Config
from torchbridge.hardware import VENDORS, Hardware
from torchbridge.numbers import TOLERANCE, relative_error
from torchbridge.validation.findings import Check, Finding, failed, passed, warned


@dataclass(frozen=True, slots=True)
class RequestedConfiguration:
    """A configuration with the machine to check it on, and the attention function to try."""

    config: Config
    device: torch.device
    hardware: Hardware
    attend: Callable[..., tuple[Tensor, Path]] = attend


def precision(request: RequestedConfiguration) -> Finding:
    """Check that the device stores the format and computes it natively."""
    asked = request.config.precision
    number, hardware = asked.default_format, request.hardware
    if number.bits < 8:
        return failed(f"torch computes nothing in {number.value}", "use fp8_e4m3 or a wider format")
    x = torch.linspace(-2, 2, 101, dtype=torch.float64)
    kept = x.to(request.device, torch.float32).to(number.dtype).float().cpu()
    error = relative_error(kept, x)
    details = {"format": number.value, "error": error}
    if number.feature is not None and not hardware.has(number.feature):
        message = f"{hardware.target} computes {number.value} by other formats"
        return warned(message, "use fp32 here, or hardware that has it", **details)
    if asked.allow_tf32 and not hardware.has("tf32"):
        return warned(f"{hardware.target} has no TF32", "leave allow_tf32 off", **details)
    if asked.mixed_precision and not (hardware.has("bf16") or hardware.has("fp16")):
        message = f"{hardware.target} has no 16-bit arithmetic"
        return warned(message, "leave mixed_precision off", **details)
    return passed(f"{number.value}, stored with a relative error of {error:.1e}", **details)


def memory(request: RequestedConfiguration) -> Finding:
    """Check that recomputed activations give the same gradients, and that 256 MiB are usable."""
    share = _fraction(request)
    room = request.hardware.memory_bytes * share / request.config.memory.safety_margin
    details = {"room_bytes": room, "fraction": share}
    if 0 < room < 2**28:
        message = f"{room / 2**20:.0f} MiB are left by fraction and margin"
        return failed(message, "raise memory_fraction", **details)
    if request.config.memory.gradient_checkpointing and not _checkpointing_works(request.device):
        return failed("checkpointing changes gradients", "leave it off", **details)
    text = f"{room / 2**30:.1f} GiB" if room else "an unknown size"
    return passed(f"{text} to plan with", **details)


def _fraction(request: RequestedConfiguration) -> float:
    group = getattr(request.config.hardware, VENDORS[request.hardware.vendor].backend, None)
    return 1.0 if group is None else group.memory_fraction


def _checkpointing_works(device: torch.device) -> bool:
    x = torch.linspace(-1, 1, 64, device=device, requires_grad=True)

    def layer(x: Tensor) -> Tensor:
        return (x.sin() * x).tanh()

    (plain,) = torch.autograd.grad(layer(x).sum(), x)
    (again,) = torch.autograd.grad(checkpoint(layer, x, use_reentrant=False).sum(), x)
    return torch.equal(plain, again)


def attention(request: RequestedConfiguration) -> Finding:
    """Check that the pattern is implemented and agrees with float64 on a small case."""
    asked = request.config.attention
    window = {} if asked.window_size is None else {"window": asked.window_size}
    pattern = create_pattern(asked.pattern, **window)  # refuses what is not implemented
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 32, 16, generator=generator)
    output, path = request.attend(*(x.to(request.device) for x in (q, k, v)), pattern=pattern)
    wide = (x.double() for x in (q, k, v))
    expected = dense(*wide, asked)
    error, limit = relative_error(output, expected), TOLERANCE[torch.float32]
    message = f"{asked.pattern.value} by {path.name}: relative error {error:.1e} against float64"
    if error > limit:
        return failed(message, "use another path", error=error, tolerance=limit)
    return passed(message, error=error, tolerance=limit, path=path.name)


def dense(q: Tensor, k: Tensor, v: Tensor, asked: AttentionConfig) -> Tensor:
    """Compute the reference [..., S, D] with a dense mask."""
    places = torch.arange(q.shape[-2])
    distance = places[:, None] - places
    seen = {
        AttentionPatterns.FULL: distance == distance,
        AttentionPatterns.CAUSAL: distance >= 0,
        AttentionPatterns.SLIDING_WINDOW: distance.abs() < (asked.window_size or 0),
    }[asked.pattern]
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.masked_fill(~seen, -torch.inf).softmax(dim=-1) @ v


def hardware(request: RequestedConfiguration) -> Finding:
    """Check that the requested backend is this machine's and supports its settings."""
    asked, found = request.config.hardware, request.hardware
    chosen, own = asked.chosen(found), asked.update(backend=None).chosen(found)
    if chosen not in (own, "cpu"):
        message = f"asked for {chosen.value}, this is {found.vendor} ({found.target})"
        return failed(message, "leave backend open, or use such a machine")
    resolved = asked.nvidia.on(found), asked.amd.on(found)  # refuse what the device has not
    count = torch.cuda.device_count() if request.device.type == "cuda" else 1
    if (asked.device_id or 0) >= count:
        return failed(f"device_id {asked.device_id} of {count} devices", "use a smaller one")
    details = {"backend": chosen.value, "fp8": resolved[0].fp8_enabled, "devices": count}
    return passed(f"{chosen.value} on {found.name}", **details)


def distributed(request: RequestedConfiguration) -> Finding:
    """Check that torch has the collectives and supports the process's device."""
    asked = request.config.distributed
    if not dist.is_available():
        message = "torch is built without torch.distributed"
        single = asked.world_size == 1
        return warned(message, "stay with one process") if single else failed(message, "rebuild")
    backend = asked.collectives(request.device.type)
    details = {"backend": backend, "world_size": asked.world_size}
    known = {"gloo": dist.is_gloo_available, "nccl": dist.is_nccl_available}
    if backend in known and not known[backend]():
        return failed(f"torch is built without {backend}", "use another backend", **details)
    if backend == "nccl" and request.device.type != "cuda":
        return failed(f"nccl is for CUDA, this is {request.device}", "use gloo", **details)
    return passed(f"{asked.world_size} process(es) by {backend}", **details)


# By the group of settings that they are about.
CHECKS: tuple[Check, ...] = (precision, memory, attention, hardware, distributed)
