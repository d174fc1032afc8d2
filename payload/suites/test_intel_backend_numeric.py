"""Numbers of the Intel backend: levels against float64, all tiles and blocks."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from suites.backend_models import resnet
from suites.numerics import needs_vendor
from torchbridge.backends.intel import (
    IntelBackend,
    IntelKernelOptimizer,
    intel_hardware,
)
from torchbridge.config import IntelArchitecture

BF16 = torch.bfloat16
CHIPS = {one.value: one for one in IntelArchitecture if one is not IntelArchitecture.AUTO}
SIZES = [(1, 1, 1), (8, 16, 16), (100, 100, 100), (129, 1000, 33), (4096, 4096, 512)]
CASES = list(zip(SIZES, [1, 32, 32, 128, 128], strict=True))  # on so many units
TILES = [8, 16, 32, 64, 128, 256]
needs_xpu = needs_vendor("intel", "an Intel XPU")


def kernels(architecture: str, units: int) -> IntelKernelOptimizer:
    """Return a kernel optimizer for a chip of this architecture with so many units."""
    return IntelKernelOptimizer(intel_hardware(CHIPS[architecture], units=units))


class TestLevels:
    def test_both_names_of_a_level_are_the_same(self, device):
        backend = IntelBackend(hardware=intel_hardware(IntelArchitecture.PVC), device=device)
        for ours, theirs in (("O0", "conservative"), ("O1", "balanced"), ("O2", "aggressive")):
            first = [one.name for one in backend.prepare_model(resnet(), level=ours).passes]
            assert first == [
                one.name for one in backend.prepare_model(resnet(), level=theirs).passes
            ]


class TestTiles:
    @pytest.mark.parametrize(("sizes", "units"), CASES, ids=str)
    def test_no_tiles_are_better(self, sizes, units):
        found = kernels("pvc", units).gemm_config(*sizes, BF16)
        m, n, _ = sizes

        def share(tile_m: int, tile_n: int) -> float:
            groups = math.ceil(m / tile_m) * math.ceil(n / tile_n)
            return m * n / (math.ceil(groups / units) * units * tile_m * tile_n)

        best = max(share(*t) for t in itertools.product(TILES, TILES) if t[1] % 16 == 0)
        assert share(found.tile_m, found.tile_n) == pytest.approx(best)

    def test_width_and_depth_of_the_matrix_units(self):
        wide, narrow = (kernels(a, 1).gemm_config(8, 8, 64, BF16) for a in ("pvc", "dg2"))
        assert (wide.tile_n, narrow.tile_n) == (16, 8)
        assert "16 deep" in wide.reason
        assert "32 deep" in kernels("pvc", 1).gemm_config(8, 8, 64, torch.int8).reason
        with pytest.raises(ValueError, match="at least 1"):
            kernels("pvc", 1).gemm_config(0, 1, 1)


class TestBlocks:
    @pytest.mark.parametrize(
        ("architecture", "head_dim"), [("pvc", 32), ("pvc", 256), ("dg2", 64), ("dg2", 128)]
    )
    def test_no_blocks_are_larger(self, architecture, head_dim):
        chip = kernels(architecture, 1)
        found = chip.attention_config(1, 1, 4096, 4096, head_dim, BF16)
        sizes = itertools.product((16, 32, 64, 128, 256), repeat=2)
        fitting = [q * k for q, k in sizes if (q + 2 * k) * head_dim * 2 <= chip.local_bytes]
        assert found.q_block * found.k_block == max(fitting)

    def test_fused_from_where_scores_do_not_fit(self):
        chip = kernels("pvc", 128)  # 16 MiB of local memory
        lengths = [2**n for n in range(8, 16)]
        fused = [chip.attention_config(1, 1, n, n, 64, BF16).fused for n in lengths]
        assert fused == [2 * n * n > 16 * 2**20 for n in lengths]


class TestConvolutions:
    @pytest.mark.parametrize(
        ("channels", "dtype"), [(16, torch.float32), (32, BF16), (64, torch.int8)]
    )
    def test_layout_by_the_bytes_of_a_pixel(self, channels, dtype):
        formats = [
            kernels("pvc", 1).conv_config((1, c, 8, 8), 8, (1, 1), dtype)[1]
            for c in (channels - 1, channels)
        ]
        assert formats == [torch.contiguous_format, torch.channels_last]
