"""The NVIDIA backend on an NVIDIA device: what it detects, and what it computes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from suites.backend_models import in_float64, mlp
from suites.numerics import assert_close, needs_cuda, relative_error, rms_error
from suites.test_memory import ALONE
from torchbridge import memory
from torchbridge.backends.errors import OutOfMemoryError
from torchbridge.backends.nvidia import (
    CUDADeviceManager,
    CUDAOptimizations,
    CUDAUtilities,
    FP8Compiler,
    NVIDIABackend,
    NVIDIAMemoryManager,
)
from torchbridge.config import Config
from torchbridge.peaks import peak_flops

MIB = 2**20
pytestmark = needs_cuda()


class TestDevice:
    def test_it_is_found(self, device):
        made = NVIDIABackend()
        assert (made.is_available, made.device.type) == (True, "cuda")
        assert made.compute_capability == torch.cuda.get_device_capability(device)
        assert made.get_device_info()["name"] == torch.cuda.get_device_name(device)

    def test_properties(self, device):
        told = CUDADeviceManager().get_device_properties(device.index)
        found = torch.cuda.get_device_properties(device)
        assert told["multi_processor_count"] == found.multi_processor_count
        assert told["total_memory"] == found.total_memory
        assert told["compute_capability"] == (found.major, found.minor)

    def test_environment(self):
        info = CUDAUtilities().get_cuda_env_info()
        assert info["cuda"] == torch.version.cuda
        assert info["device_count"] == torch.cuda.device_count() == len(info["devices"])

    @needs_cuda((8, 9))
    def test_peaks_are_the_devices_own(self):
        hardware = NVIDIABackend().hardware
        assert 50e12 < peak_flops(hardware, "bf16") < 5e15
        assert peak_flops(hardware, "fp8") == 2 * peak_flops(hardware, "bf16")

    def test_profile_grows_with_the_work(self, device):
        small, large = (torch.randn(n, n, device=device) for n in (256, 4096))
        utilities = CUDAUtilities()
        quick = utilities.profile(lambda: small @ small)
        slow = utilities.profile(lambda: large @ large)
        assert 0 < quick.low <= quick.median <= quick.high
        assert slow.median > quick.median


class TestModels:
    @needs_cuda((8, 0))
    def test_cuda_graphs(self, device):
        config = Config().update(hardware={"nvidia": {"cuda_graphs": True}})
        model, x = mlp(), torch.randn(32, 128, device=device)
        reference = copy.deepcopy(model)
        prepared = NVIDIABackend(config).optimize_for_inference(model, (x,))
        assert prepared.result("compile").applied
        with torch.no_grad():
            for batch in torch.randn(4, 32, 128, device=device):  # recorded, then replayed
                assert_close(prepared.model(batch).clone(), in_float64(reference, batch), 3e-2)

    @needs_cuda((8, 0))
    def test_tf32_only_inside_of_the_switches(self, device):
        x = torch.randn(512, 512, device=device)
        expected = x.cpu().double() @ x.cpu().double()
        config = Config().update(precision={"allow_tf32": True})
        with CUDAOptimizations(config).flags():
            inside = relative_error(x @ x, expected)
        assert relative_error(x @ x, expected) < 1e-6 < 1e-5 < inside < 1e-2


class TestFP8:
    @needs_cuda((8, 9))
    def test_by_the_units(self, device):
        model, x = mlp().to(device).eval(), torch.randn(64, 128, device=device)
        compiler = FP8Compiler()
        prepared = compiler.prepare_for_fp8(model)
        assert 0.005 < rms_error(prepared(x), in_float64(model, x)) < 0.08
        (path,) = compiler.get_fp8_stats(prepared)["paths_taken"]
        assert path.startswith(("scaled_mm (predicted", "weight_only (predicted"))  # with reason

    @needs_cuda((8, 9))
    def test_compiled(self, device):
        model, x = mlp().to(device).eval(), torch.randn(64, 128, device=device)
        prepared = FP8Compiler().compile_with_fp8(model, (x,))
        assert prepared.applied == ("fp8", "compile")
        assert rms_error(prepared.model(x), in_float64(model, x)) < 0.08


class TestMemory:
    def test_to_the_byte(self, device):
        before = memory.stats(device).allocated
        kept = torch.empty(64 * MIB, dtype=torch.uint8, device=device)
        assert memory.stats(device).allocated - before == kept.nbytes

    def test_protection_against_running_out(self, device):
        manager = NVIDIAMemoryManager()
        free_mb = memory.stats(device).free / MIB
        assert manager.check_memory_available(free_mb / 2)
        with pytest.raises(OutOfMemoryError, match="Insufficient GPU memory"):
            manager.allocate_with_oom_protection((int(free_mb) + 1, MIB), torch.int8)
        assert manager.allocate_with_oom_protection((4, MIB), torch.int8).device == device

    @ALONE
    def test_a_model_that_does_not_fit(self, device):
        memory.empty_cache(device)
        size = memory.stats(device).free - 64 * MIB
        hoard = torch.empty(size, dtype=torch.uint8, device=device)
        try:
            with pytest.raises(OutOfMemoryError, match="Insufficient GPU memory for the model"):
                NVIDIABackend().prepare_model(nn.Linear(2**14, 2**13))  # 512 MiB
            assert hoard.nbytes == size
        finally:
            del hoard
            memory.empty_cache(device)
