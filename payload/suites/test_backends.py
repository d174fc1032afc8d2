"""What all backends share: how one is chosen, and how levels change a model's numbers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from suites import backend_models
from suites.backend_models import AMPERE, HOPPER, L4, TURING, VOLTA, in_float64, mlp, resnet
from suites.covering import pairwise
from suites.numerics import assert_close, relative_error
from torchbridge import backends
from torchbridge.backends import (
    BACKENDS,
    CPUBackend,
    Optimizer,
    create_backend,
    detect_best_backend,
    errors,
    list_available_backends,
)
from torchbridge.backends.intel import IntelArchitecture, intel_hardware
from torchbridge.backends.optimise import LEVELS
from torchbridge.config import Config
from torchbridge.device import pick_device
from torchbridge.hardware import VENDORS, Hardware, probe

PLAIN, CPU = Hardware.cpu(), torch.device("cpu")
WITH_BF16 = Hardware.cpu(["avx512_bf16"])
PVC, INTEGRATED = (intel_hardware(IntelArchitecture(name)) for name in ("pvc", "integrated"))
CHIPS = {  # by the dtype of their aggressive level
    "float32": (PLAIN, Hardware.nvidia((6, 1)), Hardware.amd("gfx1030"), INTEGRATED),
    "float16": (VOLTA, TURING),
    "bfloat16": (WITH_BF16, AMPERE, HOPPER, Hardware.amd("gfx90a"), Hardware.amd("gfx942"), PVC),
}
NARROW = {chip: name for name, chips in CHIPS.items() for chip in chips}
SHAPES = {"mlp": (4, 128), "resnet": (2, 3, 12, 12), "encoder": (2, 6, 32)}
LIMITS = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 3e-2}
CASES = [
    pytest.param(*case, id=f"{case[0].vendor}-{case[0].target}-{'-'.join(case[1:])}")
    for case in pairwise(list(NARROW), list(SHAPES), list(LEVELS))
]


def backend(hardware=PLAIN, config=None, device=CPU):
    """Return a backend by the rules of `hardware` that compiles without a C++ compiler."""
    made = create_backend(config=config, hardware=hardware, device=device)
    made.compile_backend = "aot_eager"
    return made


class TestSelection:
    @pytest.mark.parametrize(
        ("hardware", "name"),
        [
            (L4, "nvidia"),
            (Hardware.amd("gfx942:sramecc+:xnack-"), "amd"),
            (Hardware.tpu("v5litepod-8"), "tpu"),
            (Hardware("intel", "Arc", "xe"), "intel"),
            (PLAIN, "cpu"),
        ],
        ids=lambda value: value if isinstance(value, str) else value.vendor,
    )
    def test_by_vendor(self, hardware, name):
        assert detect_best_backend(hardware) == name
        kind = backends.backend_class(name)
        assert (kind.name, VENDORS[kind.vendor].backend) == (name, name)

    def test_auto_is_this_machines_best(self):
        made = create_backend()
        assert made.name == detect_best_backend() == VENDORS[probe().vendor].backend
        assert made.is_available
        assert made.device.type == pick_device().type

    def test_only_what_has_a_device_is_listed(self):
        listed = list_available_backends()
        cuda = torch.cuda.is_available()
        assert listed[-1] == "cpu"
        assert ("nvidia" in listed) == (cuda and not torch.version.hip)
        assert ("amd" in listed) == (cuda and bool(torch.version.hip))
        assert ("intel" in listed) == torch.xpu.is_available()

    def test_what_is_not_there_is_named(self):
        with pytest.raises(ValueError, match="auto or one of nvidia, amd, tpu, intel, cpu"):
            create_backend("cuda9")
        for name in set(BACKENDS) - set(list_available_backends()):
            with pytest.warns(UserWarning, match="works on the CPU"):
                made = create_backend(name)
            assert (made.name, made.is_available, made.device) == (name, False, CPU)
            insisting = Config().update(hardware={name: {"enabled": True}})
            with pytest.raises(errors.NotAvailable, match="torch"):
                create_backend(name, insisting)

    @pytest.mark.parametrize("hardware", [HOPPER, Hardware.amd("gfx942"), PVC])
    def test_devices_by_their_number(self, hardware):
        kind = backends.backend_class(VENDORS[hardware.vendor].backend)
        two = [torch.device(VENDORS[hardware.vendor].device, index) for index in range(2)]
        for index in (0, 1):
            config = Config().update(hardware={"device_id": index})
            assert kind(config, hardware=hardware, devices=two).device == two[index]
        with pytest.raises(errors.DeviceError, match="device_id is 2, there are 2 devices"):
            kind(Config().update(hardware={"device_id": 2}), hardware=hardware, devices=two)

    def test_settings_for_another_chip_are_refused(self):
        for hardware, asked, wrong in (
            (PVC, {"architecture": "dg2"}, "architecture is pvc"),
            (INTEGRATED, {"default_precision": "bf16"}, "no native bf16"),
        ):
            with pytest.raises(errors.ConfigurationError, match=wrong):
                backend(hardware, Config().update(hardware={"intel": asked}))

    def test_old_chips_and_others_hardware_are_refused(self):
        for old in (Hardware.nvidia((5, 2)), Hardware.amd("gfx803")):
            with pytest.raises(errors.ArchitectureError, match=f"{old.target} is not supported"):
                backend(old)
        with pytest.raises(ValueError, match="CPUBackend cannot use hardware of nvidia"):
            CPUBackend(hardware=AMPERE)


class TestLevels:
    @pytest.mark.parametrize(("hardware", "name", "level"), CASES)
    def test_numbers(self, hardware, name, level, device):
        model = getattr(backend_models, name)().to(device)
        x = torch.randn(SHAPES[name], device=device)
        expected, narrow = in_float64(model, x), NARROW[hardware]
        narrow = narrow if level == "aggressive" else "float32"
        quick = Config().update(kernels={"compile": False})
        prepared = backend(hardware, quick, device).prepare_model(
            model, level=level, sample_inputs=(x,)
        )
        assert (prepared.level, prepared.model.training) == (level, False)
        assert {str(p.dtype).removeprefix("torch.") for p in model.parameters()} == {narrow}
        error = relative_error(prepared.model(x), expected)
        assert error <= LIMITS[narrow]
        assert narrow == "float32" or error > 1e-5  # the model really computes in 16 bits

    @pytest.mark.parametrize("hardware", [Hardware.amd("gfx942"), PVC], ids=lambda h: h.vendor)
    @pytest.mark.parametrize(("stored", "level"), pairwise(["bf16", "fp32"], list(LEVELS)))
    def test_precision_by_name(self, hardware, stored, level):
        name = VENDORS[hardware.vendor].backend
        config = Config().update(hardware={name: {"default_precision": stored}})
        made = backend(hardware, config)
        prepared = made.prepare_model(mlp(), level=level)
        names = [one.name for one in prepared.passes]
        assert names.count("bfloat16") == (stored == "bf16")
        assert "compile" not in names or names[-1] == "compile"
        kept = made.optimize_for_training(mlp()).model  # training keeps float32
        assert {p.dtype for p in kept.parameters()} == {torch.float32}

    def test_fusion_and_compilation_can_be_turned_off(self):
        made = backend(config=Config().update(kernels={"fusion": False, "compile": False}))
        x = torch.randn(2, 3, 12, 12)
        prepared = made.prepare_model(resnet(), level="aggressive", sample_inputs=(x,))
        assert prepared.result("fold_conv_bn").reason == "fusion is off"
        assert prepared.result("compile").reason == "turned off"


class TestModels:
    def test_a_model_that_does_not_fit(self):
        class Large(nn.Linear):
            """A layer that runs out of memory when it is moved."""

            def _apply(self, function, recurse=True):
                raise torch.OutOfMemoryError("20 GiB")

        with pytest.raises(errors.OutOfMemory, match="20 GiB") as caught:
            backend(AMPERE).prepare_model(Large(2, 2))
        assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)

    def test_for_training(self):
        model, x = resnet(), torch.randn(8, 3, 12, 12)
        reference, labels = copy.deepcopy(model), torch.arange(8) % 10
        prepared = backend(WITH_BF16).optimize_for_training(model)
        assert prepared.model is model
        assert prepared.model.training
        assert prepared.applied == ("channels_last",)
        for each in (prepared.model, reference):
            nn.functional.cross_entropy(each(x), labels).backward()
        ours, theirs = prepared.model[0].weight.grad, reference[0].weight.grad
        assert_close(ours, theirs, 1e-4)  # the gradients of the original model
        assert relative_error(model[1].running_mean, reference[1].running_mean) < 1e-5

    def test_optimizer_result(self):
        class CPUOptimizer(Optimizer):
            """An optimizer of the CPU backend."""

            backend_class = CPUBackend

        made = CPUOptimizer(hardware=PLAIN)
        result = made.optimize(resnet())
        assert result.optimization_level == "balanced"
        assert result.optimizations_applied == ("set_mode", "fold_conv_bn", "channels_last")
        reasons = "to_device: already on cpu", "sdpa: no torch.nn.MultiheadAttention"
        assert result.warnings == reasons
        assert result.device_info == made.backend.get_device_info()
        assert (result.compilation_time, len(result.passes)) == (0, 5)


class TestDevice:
    def test_there_is_always_a_processor(self):
        made = CPUBackend()
        assert (made.name, made.device, made.devices) == ("cpu", CPU, [CPU])
        assert made.hardware.memory_bytes > 2**28
        made.set_device("cpu")
        with pytest.raises(ValueError, match=r"xpu:0 is none of \['cpu'\]"):
            made.set_device("xpu:0")

    def test_nested_data(self):
        data = {"ids": torch.arange(3), "pair": (torch.ones(2), [torch.zeros(1), "text"]), "n": 5}
        made = backend()
        moved = made.to_device(data)
        assert list(moved) == ["ids", "pair", "n"]
        assert (moved["pair"][1][1], moved["n"]) == ("text", 5)
        made.device = torch.device("meta")
        assert made.to_device(data)["pair"][1][0].device.type == "meta"
