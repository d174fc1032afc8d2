"""The kernel registry: what is chosen, what is refused and why, tried on injected hardware."""

from __future__ import annotations

import pytest
import torch

from torchbridge.hardware import Hardware
from torchbridge.kernels import (
    Kernel,
    KernelRefused,
    KernelRegistry,
    Request,
)

AMPERE, ADA = Hardware.nvidia((8, 6)), Hardware.nvidia((8, 9))
HOPPER, BLACKWELL = Hardware.nvidia((9, 0)), Hardware.nvidia((10, 0))
MI300, CPU = Hardware.amd("gfx942"), Hardware("cpu", "cpu", "x86_64")
FP8_NEEDS = {"features": frozenset({"fp8"})}
BF16 = frozenset({torch.float16, torch.bfloat16})


def double(x):
    """What the plain kernels of these tests compute."""
    return 2 * x


def yield_to_hopper(request: Request) -> str | None:
    """A kernel that is the best one but on Hopper."""
    return "tma is faster" if request.hardware.architecture == "hopper" else None


def kernel(name: str, **needs) -> Kernel:
    """A kernel of the operation "double"."""
    return Kernel("double", name, double, **needs)


@pytest.fixture
def registry() -> KernelRegistry:
    """plain anywhere; bf16 from sm_80; tma on sm_90; mfma on AMD; fp8 where hardware has it."""
    registry = KernelRegistry()
    registry.register(kernel("plain"))
    registry.register(kernel("bf16", rank=1, capability=(8, 0), dtypes=BF16))
    registry.register(kernel("tma", rank=3, capability=(9, 0), differentiable=False))
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
            "tma": "needs sm_90; this is sm_89",
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
        assert asked == []  # no fp8 there: it was never asked
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
        registry.register(kernel("tma", capability=(9, 0)))
        with pytest.raises(KernelRefused) as told:
            registry.lookup("double", Request(AMPERE))
        reasons = "fp8: needs fp8 in hardware; tma: needs sm_90; this is sm_86"
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
        with pytest.raises(KernelRefused, match="double/tma: needs sm_90; this is sm_86"):
            registry.named("double", "tma", Request(AMPERE))
        with pytest.raises(KernelRefused, match="double/tma: needs sm_90; this is gfx942"):
            registry.named("double", "tma", Request(MI300))

    def test_unknown_name_lists_the_known(self, registry):
        with pytest.raises(KernelRefused, match="no kernel 'cutlass'; it has: tma, mfma, bf16"):
            registry.named("double", "cutlass", Request(CPU))
