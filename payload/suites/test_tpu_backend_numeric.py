"""Numbers of the TPU backend: graphs counted, outputs against float64, tiles, refusals."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from suites import vendor_rules as rules
from suites.backend_models import in_float64, mlp
from suites.fake_xla import FakeXLA, stand_in
from suites.numerics import Clock, assert_close, needs_module
from suites.test_tpu_backend import F32, settings
from torchbridge.backends import errors as exceptions
from torchbridge.backends.tpu import (
    TPUBackend,
    XLACompiler,
    tiled,
)
from torchbridge.backends.xla import load
from torchbridge.config import TPUConfig

needs_xla = needs_module("torch_xla")


class Growing(nn.Module):
    """A model whose graph is longer at each call, which strict mode refuses."""

    calls = 0

    def forward(self, x):
        """Return x, after adding 0 as many times as the model was called."""
        self.calls += 1
        for _ in range(self.calls):
            x = x + 0
        return x


class Wrong(nn.Module):
    """A model that adds `by` to its input; its copies, and so the reference, add 0."""

    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x):
        """Return x + by."""
        return x + self.by

    def __deepcopy__(self, memo):
        return Wrong(0)


class TestAdapter:
    @pytest.mark.parametrize(
        ("kind", "version", "gib"),
        [
            ("TPU v4", "v4", 32),
            ("TPU v5 lite", "v5e", 16),
            ("TPU v5", "v5p", 95),
            ("X", "unknown", 0),
        ],
    )
    def test_the_chip_by_its_kind(self, kind, version, gib, monkeypatch):
        monkeypatch.delenv("TPU_ACCELERATOR_TYPE", raising=False)
        hardware = TPUBackend(xla=stand_in(FakeXLA(kind=kind))).hardware
        assert (hardware.architecture, hardware.memory_bytes) == (version, gib * 2**30)

    def test_xla_on_a_processor_is_no_tpu(self):
        with pytest.warns(UserWarning, match="works on the CPU"):
            backend = TPUBackend(xla=stand_in(FakeXLA(hardware="CPU")))
        assert backend.degraded == "torch_xla computes on CPU, not on a TPU"
        assert (backend.is_available, backend.xla, backend.compiler) == (False, None, None)

    @needs_xla
    def test_the_installed_torch_xla(self):
        xla = load()
        x = torch.randn(16, 8)
        moved = x.to(xla.device())
        xla.sync(wait=True)
        before = xla.compilations().count
        product = moved @ moved.T
        xla.sync(wait=True)
        assert xla.compilations().count == before + 1
        assert_close(product.cpu(), x.double() @ x.double().T, 2e-2)

    @needs_xla
    def test_a_model_compiled_by_the_installed_torch_xla(self):
        model, x, xla = mlp(), torch.randn(8, 128), load()
        expected = in_float64(model, x)
        compiled = XLACompiler(TPUConfig(strict_validation=True), xla).compile_model(model, (x,))
        given = x.to(xla.device())
        xla.sync()
        before = xla.compilations().count
        for _ in range(3):
            assert_close(compiled(given).cpu(), expected, 2e-2)
        assert xla.compilations().count == before


class TestGraphs:
    def test_a_shape_is_compiled_once(self):
        fake = FakeXLA()
        inputs = {rows: torch.randn(rows, 128) for rows in (2, 3)}
        compiler, model = XLACompiler(TPUConfig(), stand_in(fake)), mlp()
        with fake.lazily():
            compiled = compiler.compile_model(model, (inputs[2],))
        assert compiled.compilation.graphs == 1
        counts = []
        for rows in (2, 2, 3, 2, 3):
            before = fake.compilations
            with fake.lazily():
                compiled(inputs[rows])
            counts.append(fake.compilations - before)
        assert counts == [0, 0, 1, 0, 0]

    def test_growing_graphs_are_refused(self):
        fake, x = FakeXLA(), torch.ones(3)
        compiler = XLACompiler(TPUConfig(strict_validation=True), stand_in(fake))
        with fake.lazily():
            compiled = compiler.compile_model(Growing(), (x,))
        with fake.lazily(), pytest.raises(exceptions.XLARecompilation, match="Growing"):
            compiled(x)

    def test_training_sends_nothing_by_itself(self):
        fake = FakeXLA()
        compiled = XLACompiler(TPUConfig(), stand_in(fake)).compile_model(
            mlp(), (torch.ones(1, 128),)
        )
        steps = fake.steps
        output = compiled.train()(torch.ones(1, 128))
        assert (fake.steps, output.requires_grad) == (steps, True)
        assert compiled.eval()(torch.ones(1, 128)).requires_grad is False
        assert fake.steps == steps + 1

    def test_a_slow_compilation_is_refused(self):
        clock = Clock()

        class Slow(nn.Identity):
            def forward(self, x):
                clock.now += 200
                return x

        compiler = XLACompiler(TPUConfig(compile_timeout_s=150), stand_in(), clock=clock)
        with pytest.raises(exceptions.XLACompilationTimeout, match=r"in 200\.0 s, over 150 s"):
            compiler.compile_model(Slow(), (torch.ones(1),))
        assert (compiler.stats.compiled, compiler.stats.cache.size) == (0, 0)

    @pytest.mark.parametrize("by", [0.5, math.nan])
    def test_a_wrong_output_is_refused(self, by):
        compiler = XLACompiler(TPUConfig(), stand_in())
        with pytest.raises(exceptions.XLACompilationError, match="off by"):
            compiler.compile_model(Wrong(by), (torch.ones(4),))
        assert compiler.stats.cache.size == 0


class TestOutputs:
    def test_float32_is_kept(self):
        x, prepare = torch.randn(64, 128), TPUBackend(settings(**F32), xla=stand_in()).prepare_model
        given = {"level": "aggressive", "sample_inputs": (x,), "limit": 1e-5}
        prepared = rules.keeps_the_numbers(prepare, mlp(), x, **given)
        assert prepared.result("matmul_precision").evidence == "default -> highest"


class TestTiles:
    @pytest.mark.parametrize(
        ("shape", "dtype"),
        [
            ((1,), torch.float32),
            ((7, 100), torch.bfloat16),
            ((8, 128), torch.int8),
            ((3, 33, 129), torch.float32),
            ((2, 5, 64, 256), torch.bfloat16),
        ],
    )
    def test_tiles_cover_the_tensor(self, shape, dtype):
        rows, columns = [1, *shape][-2:]
        tile_rows = 32 // dtype.itemsize  # 4 KiB of 128 columns
        tiles = len(range(0, rows, tile_rows)) * len(range(0, columns, 128))
        assert tiled(shape, dtype).tiled_bytes == math.prod(shape[:-2]) * tiles * 4096
        assert tiled(shape, dtype).bytes == torch.empty(shape, dtype=dtype).nbytes
