"""The benchmarks' baselines compute the same as the library; tried on the CPU."""

from __future__ import annotations

import pytest
import torch

from benchmarks import gpu_baselines, moe_arms
from benchmarks.cpu_comparisons import NotHereError
from torchbridge.attention import PathRefused
from torchbridge.bench.run import compare_outputs
from torchbridge.kernels import KernelRefused

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", gpu_baselines.BENCHMARKS)
@torch.no_grad()
def test_arms_are_equal(name):
    try:
        benchmark = gpu_baselines.BENCHMARKS[name](CPU, True)
        first_s, equality = compare_outputs(benchmark)
    except (NotHereError, PathRefused, KernelRefused) as reason:
        pytest.skip(str(reason))
    assert equality.equal, f"{equality.error} {equality.unit} is over {equality.tolerance}"
    assert set(first_s) == {"subject", "baseline"}


def test_unsloths_product_is_called_as_it_wants(monkeypatch):
    """Unsloth's product gets its arguments as its interface requires, checked by a fake."""

    def grouped_gemm(
        x, w, m_sizes, topk, gather_indices, permute_x=False, permute_y=False, autotune=False,
        is_first_gemm=True,
    ):  # fmt: skip
        assert autotune
        assert (permute_x, permute_y) == (is_first_gemm, not is_first_gemm)
        rows = x[gather_indices // topk] if permute_x else x
        parts = zip(rows.split(m_sizes.tolist()), w, strict=True)
        out = torch.cat([part @ weight.T for part, weight in parts])
        return torch.empty_like(out).index_copy(0, gather_indices, out) if permute_y else out

    library = type("Library", (), {"grouped_gemm": staticmethod(grouped_gemm)})
    monkeypatch.setattr(gpu_baselines, "needs_cuda", lambda *_: None)
    monkeypatch.setattr(gpu_baselines, "package", lambda name: library)
    with torch.no_grad():
        benchmark = gpu_baselines.BENCHMARKS["moe/512/unsloth/graph"](CPU, True)
        assert compare_outputs(benchmark)[1].equal


def test_a_package_that_is_not_here_is_refused_by_name():
    with pytest.raises(NotHereError, match="no_such_library cannot be imported: ModuleNotFound"):
        gpu_baselines.package("no_such_library")


def test_what_cannot_be_recorded_is_refused(monkeypatch):
    class Graphs:
        def __init__(self, device):
            self.aside = torch.no_grad

        def record(self, work):
            raise RuntimeError("it waits")

    monkeypatch.setattr(moe_arms, "CudaGraphs", Graphs)
    with pytest.raises(NotHereError, match="cannot be recorded: it waits"):
        gpu_baselines.as_graph(lambda: None, torch.device("cuda"))
    assert gpu_baselines.as_graph(int, CPU) is int
