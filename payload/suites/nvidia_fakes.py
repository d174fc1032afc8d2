"""Fakes of NVIDIA machines, and the formula of attention."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import torch
from torch import Tensor

from suites.backend_models import AMPERE
from torchbridge.attention import FlashAttention3
from torchbridge.backends.nvidia import NVIDIABackend, NVIDIAOptimizer
from torchbridge.config import Config
from torchbridge.hardware import Hardware

MIB = 2**20


class FakeCuda:
    """A fake of torch.cuda with two L4s, whose driver reports few properties."""

    def __init__(self):
        self.index = 0

    def is_available(self):
        return True

    def device_count(self):
        return 2

    def current_device(self):
        return self.index

    def set_device(self, index):
        self.index = index

    def get_arch_list(self):
        return ["sm_80", "sm_90"]

    def get_device_properties(self, index):
        facts = {"name": "NVIDIA L4", "major": 8, "minor": 9, "total_memory": 23 * 2**30}
        return SimpleNamespace(**facts, multi_processor_count=58, warp_size=32)


class NoCuda:
    """A fake of torch.cuda on a machine without a device."""

    def is_available(self):
        return False

    def get_arch_list(self):
        return []


def backend(
    device: torch.device, hardware: Hardware = AMPERE, config: Config | None = None
) -> NVIDIABackend:
    """Return a backend by the rules of `hardware` that compiles without a C++ compiler."""
    made = NVIDIABackend(config, hardware=hardware, device=device)
    made.compile_backend = "aot_eager"
    return made


def optimizer(device: torch.device, hardware: Hardware = AMPERE) -> NVIDIAOptimizer:
    """Return an optimizer by the rules of `hardware` that compiles without a C++ compiler."""
    made = NVIDIAOptimizer(hardware=hardware, device=device)
    made.backend.compile_backend = "aot_eager"
    return made


def explicit(
    layer: FlashAttention3, x: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return a layer's output and attention weights by its formula, in float64 on the CPU."""
    layer, x = copy.deepcopy(layer).cpu().double(), x.cpu().double()
    parts = layer.qkv(x).unflatten(-1, (3, layer.num_heads, -1)).permute(2, 0, 3, 1, 4)
    scores = parts[0] @ parts[1].transpose(-2, -1) / layer.head_dim**0.5
    if layer.causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask.cpu(), -torch.inf)
    weights = scores.softmax(dim=-1)
    return layer.out((weights @ parts[2]).transpose(1, 2).flatten(2)), weights
