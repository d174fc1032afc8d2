"""Apply a Config to the process: anomaly detection, profiler, memory limit, process group."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist

from torchbridge.config import Config, DistributedConfig


@contextlib.contextmanager
def running(config: Config) -> Iterator[torch.profiler.profile | None]:
    """Apply the process-wide settings of `config` in the block; undo them afterwards.

    `debug` enables anomaly detection; `profile` yields a torch profiler (else None); on NVIDIA GPUs
    `memory_fraction` limits the memory; a `world_size` above 1 initialises the process group.
    """
    device = config.device
    with contextlib.ExitStack() as stack:
        if device.type == "cuda" and config.hardware.chosen().value == "cuda":
            fraction = config.hardware.nvidia.memory_fraction
            torch.cuda.set_per_process_memory_fraction(fraction, device.index)
            stack.callback(torch.cuda.set_per_process_memory_fraction, 1.0, device.index)
        if config.distributed.world_size > 1:
            stack.enter_context(_joined(config.distributed, device))
        if config.debug:
            stack.enter_context(torch.autograd.set_detect_anomaly(True))
        # acc_events: what it gathers is all one cycle; torch 2.10 warns without
        profile = torch.profiler.profile(acc_events=True) if config.profile else None
        yield stack.enter_context(profile) if profile else None


@contextlib.contextmanager
def _joined(asked: DistributedConfig, device: torch.device) -> Iterator[None]:
    members = {"rank": asked.rank, "world_size": asked.world_size}
    collectives = asked.collectives(device.type)
    dist.init_process_group(collectives, init_method=asked.init_method, **members)
    try:
        yield
    finally:
        dist.destroy_process_group()
