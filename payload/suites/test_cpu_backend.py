"""The CPU backend, and through it what all backends have in common."""

from __future__ import annotations

import copy
import mmap

import pytest
import torch
from torch import nn

from suites.backend_models import AMPERE, encoder, in_float64, mlp, resnet
from suites.numerics import assert_close, relative_error
from torchbridge.backends import CPUBackend, Optimizer
from torchbridge.backends.optimise import LEVELS
from torchbridge.config import Config
from torchbridge.hardware import Hardware

PLAIN = Hardware.cpu()
WITH_BF16 = Hardware.cpu(["avx512_bf16"])
CPU = torch.device("cpu")


def backend(hardware=PLAIN, config=None) -> CPUBackend:
    """On the CPU whatever else there is, compiled without a C++ compiler."""
    made = CPUBackend(config, hardware=hardware)
    made.compile_backend = "aot_eager"
    return made


class TestCreation:
    def test_there_is_always_one(self):
        made = CPUBackend()
        assert (made.name, made.device, made.devices) == ("cpu", CPU, [CPU])
        assert made.is_available
        assert made.hardware.vendor == "cpu"
        assert made.hardware.memory_bytes > 2**28

    def test_other_vendors_hardware_is_refused(self):
        with pytest.raises(ValueError, match="CPUBackend cannot use hardware of nvidia"):
            CPUBackend(hardware=AMPERE)

    def test_device_info(self):
        info = backend(WITH_BF16).get_device_info()
        assert (info["backend"], info["vendor"], info["device"]) == ("cpu", "cpu", "cpu")
        assert (info["features"], info["capability"], info["available"]) == (["bf16"], None, True)

    def test_memory_stats(self):
        stats = CPUBackend().get_memory_stats()
        fresh = mmap.mmap(-1, 2**26)  # not what the process was given back a moment ago
        kept = torch.frombuffer(fresh, dtype=torch.float32).fill_(1)
        grown = CPUBackend().get_memory_stats()["allocated_bytes"] - stats["allocated_bytes"]
        assert 0.95 * kept.nbytes < grown < 1.3 * kept.nbytes

    def test_set_device(self):
        made = backend()
        made.set_device("cpu")
        with pytest.raises(ValueError, match=r"xpu:0 is none of \['cpu'\]"):
            made.set_device("xpu:0")


class TestLevels:
    @pytest.mark.parametrize("make", [mlp, resnet, encoder], ids=lambda make: make.__name__)
    @pytest.mark.parametrize(
        ("level", "hardware", "limit"),
        [
            ("conservative", PLAIN, 1e-5),
            ("balanced", PLAIN, 1e-5),
            ("aggressive", PLAIN, 1e-5),
            ("aggressive", WITH_BF16, 3e-2),
        ],
    )
    def test_numbers(self, make, level, hardware, limit):
        shapes = {mlp: (4, 128), resnet: (2, 3, 12, 12), encoder: (2, 6, 32)}
        model, x = make(), torch.randn(shapes[make])
        expected = in_float64(model, x)
        prepared = backend(hardware).prepare_model(model, level=level)
        assert (prepared.level, prepared.model.training) == (level, False)
        assert_close(prepared.model(x), expected, limit)
        assert ("bfloat16" in prepared.applied) == (limit == 3e-2)

    def test_conservative_is_bit_for_bit(self):
        for make, shape in ((resnet, (2, 3, 12, 12)), (encoder, (2, 6, 32))):
            model, x = make().eval(), torch.randn(shape)
            expected = model(x)
            prepared = backend(WITH_BF16).prepare_model(model, level="conservative")
            assert torch.equal(prepared.model(x), expected)

    def test_level_of_the_config(self):
        for level in LEVELS:
            made = backend(config=Config(optimization_level=level))
            assert made.prepare_model(mlp()).level == level

    def test_presets(self):
        levels = [
            backend(config=preset()).prepare_model(mlp()).level
            for preset in (Config.for_inference, Config.for_training, Config.for_development)
        ]
        assert levels == ["aggressive", "balanced", "conservative"]

    def test_unknown_level_is_balanced(self):
        with pytest.warns(UserWarning, match="unknown optimization level 'O3'"):
            prepared = backend().prepare_model(resnet(), level="O3")
        assert prepared.level == "balanced"
        assert prepared.result("fold_conv_bn").applied
        known = "known: conservative, balanced, aggressive"
        assert prepared.warnings == (f"unknown optimization level 'O3' ({known}): using balanced",)

    def test_fusion_and_compilation_can_be_turned_off(self):
        made = backend(config=Config().update(kernels={"fusion": False, "compile": False}))
        x = torch.randn(2, 3, 12, 12)
        prepared = made.prepare_model(resnet(), level="aggressive", sample_inputs=(x,))
        assert prepared.result("fold_conv_bn").reason == "fusion is off"
        assert prepared.result("compile").reason == "turned off"


class TestModels:
    def test_none(self):
        with pytest.warns(UserWarning, match="nothing to prepare"):
            assert backend().prepare_model(None) is None

    def test_no_module(self):
        with pytest.raises(TypeError, match="got int"):
            backend().prepare_model(3)

    def test_the_model_itself_is_prepared(self):
        model = resnet()
        prepared = backend().prepare_model(model)
        assert prepared.model is model
        assert isinstance(model[1], nn.Identity)

    def test_for_training(self):
        model, x = resnet(), torch.randn(8, 3, 12, 12)
        reference, labels = copy.deepcopy(model), torch.arange(8) % 10
        prepared = backend(WITH_BF16).optimize_for_training(model)
        assert prepared.model.training
        assert prepared.applied == ("channels_last",)
        for each in (prepared.model, reference):
            nn.functional.cross_entropy(each(x), labels).backward()
        ours, theirs = prepared.model[0].weight.grad, reference[0].weight.grad
        assert_close(ours, theirs, 1e-4)  # the gradients of the model as it was
        assert relative_error(model[1].running_mean, reference[1].running_mean) < 1e-5

    def test_for_inference(self):
        model, x = mlp(), torch.randn(4, 128)
        expected = in_float64(model, x)
        prepared = backend().optimize_for_inference(model, (x,))
        assert prepared.level == "aggressive"
        assert prepared.result("compile").applied
        assert_close(prepared.model(x), expected)

    def test_optimizer_result(self):
        class CPUOptimizer(Optimizer):
            """Of this backend."""

            backend_class = CPUBackend

        made = CPUOptimizer(hardware=PLAIN)
        result = made.optimize(resnet())
        assert result.optimization_level == "balanced"
        assert result.optimizations_applied == ("set_mode", "fold_conv_bn", "channels_last")
        assert result.warnings == (
            "to_device: already on cpu",
            "sdpa: no torch.nn.MultiheadAttention",
        )
        assert result.device_info == made.backend.get_device_info()
        assert (result.compilation_time, len(result.passes)) == (0, 5)


class TestData:
    def test_nested_data(self):
        data = {"ids": torch.arange(3), "pair": (torch.ones(2), [torch.zeros(1), "text"]), "n": 5}
        moved = backend().to_device(data)
        assert list(moved) == ["ids", "pair", "n"]
        assert (moved["pair"][1][1], moved["n"]) == ("text", 5)
        assert torch.equal(moved["pair"][0], torch.ones(2))
        made = backend()
        made.device = torch.device("meta")
        assert made.to_device(data)["pair"][1][0].device.type == "meta"

    def test_waiting_and_cleaning(self):
        made = backend()
        held = made.get_memory_stats()["allocated_bytes"]
        gone = torch.ones(2**24)
        del gone
        made.synchronize()
        made.empty_cache()
        made.cleanup()
        assert made.get_memory_stats()["allocated_bytes"] < held + 2**24
