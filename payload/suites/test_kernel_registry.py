"""The kernel registry: what is chosen, what is refused and why, on fake hardware."""

from __future__ import annotations

import pytest
import torch

from suites.interpreter import needs_triton
from torchbridge import kernels
from torchbridge.hardware import Hardware
from torchbridge.kernels import (
    REGISTRY,
    Kernel,
    KernelRefused,
    KernelRegistry,
    Request,
)
from torchbridge.kernels import registry as registry_module
from torchbridge.kernels.tiles import rows_variant

AMPERE, ADA = Hardware.nvidia((8, 6)), Hardware.nvidia((8, 9))
HOPPER, BLACKWELL = Hardware.nvidia((9, 0)), Hardware.nvidia((10, 0))
MI300, CPU = Hardware.amd("gfx942"), Hardware("cpu", "cpu", "x86_64")
FP8_NEEDS, TMA_NEEDS = ({"features": frozenset({one})} for one in ("fp8", "tma"))
BF16 = frozenset({torch.float16, torch.bfloat16})


def double(x):
    """Return 2 x; the function of the plain kernels of these tests."""
    return 2 * x


def yield_to_hopper(request: Request) -> str | None:
    """Return why the kernel refuses Hopper; None on other hardware."""
    return "tma is faster" if request.hardware.architecture == "hopper" else None


def kernel(name: str, **needs) -> Kernel:
    """Return a kernel of the operation "double" with these requirements."""
    return Kernel("double", name, double, **needs)


@pytest.fixture
def registry() -> KernelRegistry:
    """Return a registry with kernels for any hardware, for bf16, for tma and for AMD."""
    registry = KernelRegistry()
    registry.register(kernel("plain"))
    registry.register(kernel("bf16", rank=1, features=frozenset({"bf16"}), dtypes=BF16))
    registry.register(kernel("tma", rank=3, differentiable=False, **TMA_NEEDS))
    registry.register(kernel("mfma", rank=2, vendors=frozenset({"amd"})))
    return registry


class TestRegistration:
    def test_duplicate_name_is_refused(self, registry):
        with pytest.raises(ValueError, match="double has a kernel 'plain' already"):
            registry.register(kernel("plain", rank=9))
        assert registry.kernels("double")[-1].rank == 0

    def test_same_name_in_another_operation(self, registry):
        registry.register(Kernel("triple", "plain", lambda x: 3 * x))
        x = torch.arange(3.0)
        chosen = registry.lookup("triple", Request(CPU)).kernel
        assert torch.equal(chosen.run(x), x + x + x)
        assert registry.operations == ("double", "triple")

    def test_kernels_come_best_first(self, registry):
        assert [one.name for one in registry.kernels("double")] == ["tma", "mfma", "bf16", "plain"]

    def test_equal_ranks_keep_their_order(self):
        registry = KernelRegistry()
        for name in ("first", "second", "third"):
            registry.register(kernel(name))
        assert [one.name for one in registry.kernels("double")] == ["first", "second", "third"]
        assert registry.lookup("double", Request(CPU)).kernel.name == "first"


class TestLookup:
    @pytest.mark.parametrize(
        ("hardware", "dtype", "expected"),
        [
            (CPU, torch.float32, "plain"),
            (AMPERE, torch.float32, "plain"),
            (AMPERE, torch.bfloat16, "bf16"),
            (HOPPER, torch.bfloat16, "tma"),
            (BLACKWELL, torch.float32, "tma"),
            (MI300, torch.bfloat16, "mfma"),
        ],
        ids=["cpu", "ampere-fp32", "ampere-bf16", "hopper", "blackwell", "mi300"],
    )
    def test_best_for_the_hardware(self, registry, hardware, dtype, expected):
        assert registry.lookup("double", Request(hardware, dtype)).kernel.name == expected

    def test_better_ones_say_why_not(self, registry):
        choice = registry.lookup("double", Request(ADA, torch.float32))
        assert choice.refused == {
            "tma": "needs tma in hardware",
            "mfma": "needs amd; this is nvidia",
            "bf16": "does not compute float32",
        }

    def test_worse_ones_are_not_mentioned(self, registry):
        assert registry.lookup("double", Request(HOPPER)).refused == {}

    def test_gradient_excludes_kernels_without_backward(self, registry):
        choice = registry.lookup("double", Request(HOPPER, torch.bfloat16, gradient=True))
        assert choice.kernel.name == "bf16"
        assert choice.refused["tma"] == "has no backward"

    def test_features_must_all_be_there(self, registry):
        registry.register(kernel("both", rank=9, features=frozenset({"fp8", "fp4"})))
        assert registry.lookup("double", Request(BLACKWELL)).kernel.name == "both"
        assert registry.lookup("double", Request(HOPPER)).refused["both"] == "needs fp4 in hardware"
        lacking = registry.lookup("double", Request(AMPERE)).refused["both"]
        assert lacking == "needs fp4, fp8 in hardware"

    def test_own_reason_is_asked_last(self, registry):
        asked = []

        def refuse(request: Request) -> str | None:
            asked.append(request.dtype)
            return None if request.variant == "tanh" else "computes tanh only"

        registry.register(kernel("picky", rank=9, **FP8_NEEDS, refuse=refuse))
        assert registry.lookup("double", Request(AMPERE)).kernel.name == "plain"
        assert asked == []  # not called without fp8
        assert registry.lookup("double", Request(ADA)).refused["picky"] == "computes tanh only"
        assert registry.lookup("double", Request(ADA, variant="tanh")).kernel.name == "picky"

    def test_new_kernel_is_seen_at_once(self, registry):
        assert registry.lookup("double", Request(CPU)).kernel.name == "plain"
        registry.register(kernel("better", rank=5))
        assert registry.lookup("double", Request(CPU)).kernel.name == "better"

    def test_choice_is_remembered(self, registry):
        first = registry.lookup("double", Request(HOPPER))
        assert registry.lookup("double", Request(Hardware.nvidia((9, 0)))) is first


class TestRefusal:
    def test_unknown_operation(self, registry):
        with pytest.raises(KernelRefused, match="no operation 'halve'; registered: double"):
            registry.lookup("halve", Request(CPU))

    def test_all_refuse_with_their_reasons(self):
        registry = KernelRegistry()
        registry.register(kernel("fp8", **FP8_NEEDS))
        registry.register(kernel("tma", **TMA_NEEDS))
        with pytest.raises(KernelRefused) as told:
            registry.lookup("double", Request(AMPERE))
        reasons = "fp8: needs fp8 in hardware; tma: needs tma in hardware"
        assert str(told.value) == f"no kernel for double: {reasons}"

    def test_one_that_yields_is_had_by_name_only(self, registry):
        registry.register(kernel("slow here", rank=9, yields=yield_to_hopper))
        choice = registry.lookup("double", Request(HOPPER))
        assert choice.kernel.name == "tma"
        assert choice.refused == {"slow here": "tma is faster"}
        assert registry.named("double", "slow here", Request(HOPPER)).name == "slow here"
        assert registry.lookup("double", Request(AMPERE)).kernel.name == "slow here"

    def test_by_name_or_not_at_all(self, registry):
        assert registry.named("double", "plain", Request(HOPPER)).name == "plain"
        with pytest.raises(KernelRefused, match="double/tma: needs tma in hardware"):
            registry.named("double", "tma", Request(AMPERE))

    def test_unknown_name_lists_the_known(self, registry):
        with pytest.raises(KernelRefused, match="no kernel 'cutlass'; it has: tma, mfma, bf16"):
            registry.named("double", "cutlass", Request(CPU))


@needs_triton
class TestDispatch:
    @pytest.mark.parametrize("operation", ["moe_experts", "grouped_mm", "linear_cross_entropy"])
    def test_old_and_other_chips_are_refused(self, operation):
        turing, rdna = Hardware.nvidia((7, 5)), Hardware.amd("gfx1100")
        for hardware, reason in (
            (turing, "needs sm_80; this is sm_75"),
            (rdna, "is built for gfx90a and gfx942; this is gfx1100"),
            (Hardware.tpu("v5litepod-8"), "needs amd or nvidia; this is google"),
            (Hardware.cpu(), "needs amd or nvidia; this is cpu"),
        ):
            with pytest.raises(KernelRefused, match=reason):
                REGISTRY.named(operation, "triton", Request(hardware))
            assert REGISTRY.lookup(operation, Request(hardware)).kernel.name == "torch"

    @pytest.mark.parametrize("operation", ["moe_experts", "grouped_mm", "linear_cross_entropy"])
    def test_dtypes_that_do_not_fit_are_refused(self, operation):
        hopper = Hardware.nvidia((9, 0))
        for request, reason in (
            (Request(hopper, torch.float64), "does not compute float64"),
            (Request(hopper, variant="mixed dtypes"), "must have one dtype"),
        ):
            with pytest.raises(KernelRefused, match=reason):
                REGISTRY.named(operation, "triton", request)
            assert REGISTRY.lookup(operation, request).kernel.name == "torch"

    def test_few_rows_in_triton_many_by_the_library(self):
        operation = "moe_experts"
        hopper, bf16 = Hardware.nvidia((9, 0)), torch.bfloat16
        for hardware, dtype, rows, taken in (
            (hopper, bf16, 64, "triton"),
            (hopper, bf16, 65, "torch"),
            (Hardware.amd("gfx942"), bf16, 65, "torch"),
            (hopper, torch.float32, 16, "triton"),
            (hopper, torch.float32, 17, "torch"),
            (Hardware.amd("gfx942"), torch.float32, 64, "triton"),
        ):
            for experts in (1, 8):
                request = Request(hardware, dtype, variant=rows_variant(experts * rows, experts))
                assert REGISTRY.lookup(operation, request).kernel.name == taken
        many = Request(hopper, bf16, variant=rows_variant(65))
        told = {"triton": "for more than 64 rows the library multiplies faster"}
        assert REGISTRY.lookup(operation, many).refused == told
        learns = Request(hopper, bf16, gradient=True)
        assert REGISTRY.lookup(operation, learns).refused == {"triton": "has no backward"}

    def test_what_tiles_are_slow_at_is_the_librarys(self):
        x, weight = torch.ones(2, 64), torch.ones(32, 64)
        odd, across = "widths are multiples of 16", "would be copied"
        for tensors, reason in (
            ((x, weight, None, weight[:, 0]), None),
            ((x[:, :40], weight[:, :40]), odd),
            ((x, torch.ones(32, 72)[:, :64]), odd),
            ((torch.ones(2, 72)[:, :64], weight), odd),
            ((x, weight.T.contiguous().T), across),
            ((x, weight, torch.ones(2, 64, 32).mT), across),
        ):
            request = Request(Hardware.nvidia((9, 0)), variant=rows_variant(2, 1, *tensors))
            choice = REGISTRY.lookup("moe_experts", request)
            assert (choice.kernel.name == "triton") == (reason is None)
            assert (reason or "") in choice.refused.get("triton", "")
            assert rows_variant(0, 1, *tensors) == ""  # traced: sizes are unknown

    def test_sizes_are_asked_for_by_the_functions(self, monkeypatch):
        """Functions ask the registry with the sizes of their arguments.

        The CPU gets the choices of an sm_90; if a Triton kernel were chosen, it would find no
        driver.
        """
        monkeypatch.setattr(registry_module, "hardware_of", lambda _: Hardware.nvidia((9, 0)))
        x, weight, experts = torch.ones(2, 40), torch.ones(64, 40), torch.zeros(2, 1).long()
        given = (x, experts, torch.ones(2, 1), weight[None], torch.ones(1, 40, 64))
        assert kernels.moe_experts(*given).shape == (2, 40)

    def test_shapes_without_numbers(self):
        """Functions work on the meta device, which autocast does not support."""
        x = torch.empty(2, 8, device="meta", requires_grad=True)
        assert kernels.linear_gelu(x, x)[0].is_meta
        loss = kernels.linear_cross_entropy(x, x, x[:, 0].long())
        assert torch.autograd.grad(loss, x)[0].shape == x.shape
