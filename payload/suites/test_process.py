"""A process as its configuration has it: anomalies, profiles, its part in a group."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from suites.numerics import needs_cuda
from torchbridge.config import Config
from torchbridge.process import running


def test_anomalies_are_found_where_they_arise(device):
    x = torch.zeros(2, device=device, requires_grad=True)
    with running(Config(debug=True)):
        output = (x.sqrt() * 0).sum()
        with (
            pytest.warns(UserWarning, match="Error detected in SqrtBackward0"),
            pytest.raises(RuntimeError, match="returned nan values"),
        ):
            output.backward()
        assert torch.is_anomaly_enabled()
    assert not torch.is_anomaly_enabled()


def test_calls_are_counted(device):
    x = torch.randn(8, 8, device=device)
    with running(Config(profile=True)) as profile:
        for _ in range(3):
            x = x @ x
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["aten::mm"] == 3


def test_nothing_by_default():
    with running(Config()) as profile:
        assert (profile, torch.is_anomaly_enabled()) == (None, False)


def test_processes_meet_and_part(tmp_path):
    if not (dist.is_available() and dist.is_gloo_available()):
        pytest.skip("this torch has no gloo")
    command = [sys.executable, "-m", "suites.config_worker"]
    options = {"cwd": Path(__file__).parents[1], "stdout": subprocess.PIPE, "text": True}
    store = str(tmp_path / "store")
    both = [subprocess.Popen([*command, rank, store], **options) for rank in ("0", "1")]
    try:
        said = [process.communicate(timeout=240)[0].splitlines() for process in both]
    finally:
        for process in both:
            process.kill()
    assert all("3.0 False" in lines for lines in said), said  # gloo may say something, too


@needs_cuda()
def test_memory_is_limited(device):
    share = 2**28 / torch.cuda.get_device_properties(device).total_memory  # 256 MiB
    config = Config().update(hardware={"nvidia": {"memory_fraction": share}})
    torch.cuda.empty_cache()
    with running(config), pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**29, dtype=torch.uint8, device=device)
    assert torch.empty(2**29, dtype=torch.uint8, device=device).nbytes == 2**29
