"""Profile an arm's kernels, for benchmarks that miss their goal."""

from __future__ import annotations

from typing import Any

import torch

from torchbridge.bench import Arm
from torchbridge.device import synchronise

CALLS = 3
MOST = 8
NAME = 90  # characters of a kernel's name


def profile_of(arm: Arm, device: torch.device) -> list[dict[str, Any]]:
    """Return the kernels that take the most device time: name, microseconds and count per call.

    On the CPU, operators are returned instead of kernels.
    """
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as found:
        for _ in range(CALLS):
            if arm.setup is not None:
                arm.setup()
            arm.work()
        synchronise(device)
    time = "self_cpu_time_total" if device.type == "cpu" else "self_device_time_total"
    rows = [row for row in found.key_averages() if not row.is_user_annotation]
    rows = [row for row in rows if getattr(row, time, 0) > 0]
    if device.type == "cuda":  # an operator's row has the time of its kernels, which have their own
        rows = [row for row in rows if row.device_type != torch.autograd.DeviceType.CPU]
    rows.sort(key=lambda row: -getattr(row, time))
    return [
        {"name": r.key[:NAME], "us": getattr(r, time) / CALLS, "calls": r.count / CALLS}
        for r in rows[:MOST]
    ]
