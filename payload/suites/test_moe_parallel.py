"""Experts over two processes give the same numbers as in one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from suites import parallel_worker
from suites.numerics import relative_error

ROOT = Path(__file__).parents[1]
Results = list[dict[str, dict[str, torch.Tensor]]]


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Results:
    """Return the results of two processes."""
    if not (dist.is_available() and dist.is_gloo_available()):
        pytest.skip("this torch has no gloo")
    folder = tmp_path_factory.mktemp("gloo")
    files = [folder / f"{rank}.pt" for rank in (0, 1)]
    command = [sys.executable, "-m", "suites.parallel_worker"]
    processes = [
        subprocess.Popen(
            [*command, str(rank), "2", str(folder / "store"), str(file)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, file in enumerate(files)
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
    return [torch.load(file, weights_only=True) for file in files]


@pytest.fixture(scope="module")
def single() -> dict[str, dict[str, torch.Tensor]]:
    """Return the results of one process that holds all experts, for the same tokens."""
    layer = parallel_worker.build(expert_parallelism=False)
    x = torch.cat([parallel_worker.tokens_of(rank) for rank in (0, 1)])
    return {mask: parallel_worker.run(layer, x, mask) for mask in parallel_worker.MASKS}


@pytest.mark.parametrize("mask", list(parallel_worker.MASKS))
class TestTwoProcesses:
    @pytest.mark.parametrize("name", ["output", "x"])
    def test_tokens(self, results, single, mask, name):
        together = torch.cat([result[mask][name] for result in results])
        assert relative_error(together, single[mask][name]) <= 1e-12

    @pytest.mark.parametrize("name", ["up", "down", "up_bias", "down_bias"])
    def test_expert_gradients(self, results, single, mask, name):
        shares = [result[mask][f"experts.{name}"] for result in results]
        assert [len(share) for share in shares] == [2, 2]  # each process holds two of four
        assert relative_error(torch.cat(shares), single[mask][f"experts.{name}"]) <= 1e-12

    def test_router_gradient(self, results, single, mask):
        summed = sum(result[mask]["router.gate.weight"] for result in results)
        assert relative_error(summed, single[mask]["router.gate.weight"]) <= 1e-12
