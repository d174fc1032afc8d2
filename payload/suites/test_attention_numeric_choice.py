"""Which of SDPA's back-ends is taken: the rule, what is measured and remembered, and why."""

from __future__ import annotations

import pytest
import torch

from suites import attention_reference as ref
from suites.attention_reference import CASES, by_case, inputs
from suites.numerics import assert_close
from torchbridge import attention as att
from torchbridge.attention import attend, choice
from torchbridge.attention.call import Call
from torchbridge.attention.choice import LARGE, Decisions, rule
from torchbridge.hardware import Hardware

H100, B200 = (Hardware.nvidia(c) for c in ((9, 0), (10, 0)))
OTHERS = [Hardware.nvidia(c) for c in ((8, 0), (8, 6), (8, 9), (12, 0))]
OTHERS += [Hardware.amd("gfx942"), Hardware.cpu(("avx2",)), Hardware("nvidia", "?", "?")]
CPU = torch.device("cpu")


def call(sequence: int = 2048, *, dtype=torch.bfloat16, width: int = 64, **options) -> Call:
    """On no device: 2 samples, 8 heads."""
    x = torch.empty(2, 8, sequence, width, dtype=dtype, device="meta")
    return Call(x, x, x, att.FULL, None, 0.125, **options)


class Clock:
    """Seconds by back-end, and what was timed: `times` are taken in turn, the last one again."""

    def __init__(self, **times: float) -> None:
        self.times, self.works = times, []

    def __call__(self, work, device) -> float:
        assert device == CPU
        self.works.append(work)
        seen = []
        original = choice.by_backend

        def watching(call, arguments, backend):
            seen.append(backend)
            return original(call, arguments, backend)

        choice.by_backend = watching
        try:
            work()
        finally:
            choice.by_backend = original
        return self.times[seen[0]]


@pytest.fixture
def remembered(monkeypatch):
    """A memory of this test alone, with made-up times."""

    def install(**times) -> tuple[Decisions, Clock]:
        clock = Clock(**times)
        memory = Decisions(2, seconds=clock)
        monkeypatch.setattr(choice, "decisions", memory)
        return memory, clock

    return install


class TestRule:
    @pytest.mark.parametrize("hardware", [H100, B200], ids=lambda one: one.target)
    @pytest.mark.parametrize("form", ["no mask", "is_causal"])
    def test_large_calls_on_hopper(self, hardware, form):
        made = rule(hardware, call(), form)
        assert made.backend == "cudnn"
        assert made.reason == f"rule: cuDNN's is SDPA's fastest on {hardware.target}"

    @pytest.mark.parametrize("hardware", OTHERS, ids=lambda one: one.target or one.vendor)
    def test_elsewhere_it_is_torch_s_choice(self, hardware):
        assert rule(hardware, call(), "is_causal") == choice.Decision(None, None)

    def test_what_stays_torch_s(self):
        longest = int((LARGE / 16) ** 0.5)
        assert 16 * longest**2 <= LARGE < 16 * (longest + 1) ** 2
        for one, form in (
            (call(), "mask"),
            (call(), "bias"),
            (call(dtype=torch.float32), "no mask"),
            (call(width=160), "no mask"),
            (call(dropout=0.1), "no mask"),
            (call(longest - 1), "no mask"),
        ):
            assert rule(H100, one, form).backend is None
        assert rule(H100, call(longest + 1), "no mask").backend == "cudnn"

    def test_one_query_is_torch_s(self):
        x = torch.empty(64, 32, 1, 64, dtype=torch.bfloat16, device="meta")
        keys = torch.empty(64, 32, 2**15, 64, dtype=torch.bfloat16, device="meta")
        assert rule(H100, Call(x, keys, keys, att.FULL, None, 1.0), "no mask").backend is None

    def test_it_is_heeded_or_told(self, device, monkeypatch):
        """A back-end that the rule wants and torch has not: torch's choice, and why."""
        q, k, v = inputs(device)
        wanted = choice.Decision("cudnn", "rule")
        monkeypatch.setattr(choice, "_decide", lambda *_: wanted)
        output, taken = attend(q, k, v)
        assert_close(output, by_case(q, k, v, CASES["full"]))
        if device.type == "cpu":
            assert taken.backend == "flash"
            assert taken.reason.startswith("cudnn not taken: torch has no such kernel")
            assert taken.fallback is None


class TestMeasured:
    @pytest.mark.parametrize(("flash", "math"), [(1e-3, 2e-3), (2e-3, 1e-3)])
    @pytest.mark.parametrize("name", ["full", "causal", "sliding_window", "alibi"])
    def test_the_faster_one(self, remembered, name, flash, math):
        remembered(flash=flash, math=math)
        q, k, v = inputs(CPU)
        output, taken = attend(q, k, v, pattern=CASES[name].pattern, choose="measure")
        assert_close(output, by_case(q, k, v, CASES[name]))
        best = "flash" if flash < math else "math"
        assert (taken.name, taken.backend) == ("sdpa", best)
        ends = ("flash 1000 us, math 2000 us", "math 1000 us, flash 2000 us")
        assert taken.reason == f"measured: {ends[best == 'math']}"

    def test_in_turns_and_once(self, remembered):
        memory, clock = remembered(flash=1.0, math=2.0)
        q, k, v = inputs(CPU)
        for _ in range(3):
            attend(q, k, v, choose="measure")
        assert len(clock.works) == 2 * choice.ROUNDS
        first, second = clock.works[0], clock.works[1]
        assert clock.works[:4] == [first, second, second, first]
        assert (memory.hits, memory.misses, len(memory)) == (2, 1, 1)

    def test_classes_of_shapes(self, remembered):
        memory, _ = remembered(flash=1.0, math=2.0)
        for sequence in (17, 23, 32):  # up to one power of two
            attend(*inputs(CPU, sequence), choose="measure")
        assert (memory.hits, memory.misses) == (2, 1)
        others = (
            inputs(CPU, 33),
            inputs(CPU, 32, 33),
            inputs(CPU, 32, batch=3),
            inputs(CPU, 32, width=8),
            inputs(CPU, 32, groups=2),
            inputs(CPU, 32, dtype=torch.float64),
            [x.requires_grad_() for x in inputs(CPU, 32)],
        )
        for number, tensors in enumerate(others, start=2):
            attend(*tensors, choose="measure")
            assert memory.misses == number
        attend(*inputs(CPU, 32), pattern=att.Causal(), choose="measure")
        assert memory.misses == len(others) + 2
        assert len(memory) == 2  # the rest was forgotten
        memory.clear()
        assert len(memory) == 0

    def test_backward_is_timed_with_it(self, remembered):
        _, clock = remembered(flash=1.0, math=2.0)
        q, k, v = (x.requires_grad_() for x in inputs(CPU))
        output, _ = attend(q, k, v, choose="measure")
        gradients = clock.works[0]()
        assert [one.shape for one in gradients] == [x.shape for x in (q, k, v)]
        assert all(x.grad is None for x in (q, k, v))
        weights = torch.randn_like(output)
        mine = torch.autograd.grad((output * weights).sum(), (q, k, v))
        exact = torch.autograd.grad(
            (attend(q, k, v, path="explicit")[0] * weights).sum(), (q, k, v)
        )
        for one, two in zip(mine, exact, strict=True):
            assert_close(one, two)
        with torch.no_grad():
            attend(q, k, v, choose="measure")
        assert isinstance(clock.works[-1](), torch.Tensor)

    def test_what_math_cannot_hold(self, remembered, monkeypatch):
        remembered(flash=2.0, math=1.0)
        monkeypatch.setattr(choice, "MATH_BYTES", 2 * 4 * 23 * 23 * 4 - 1)
        _, taken = attend(*inputs(CPU), choose="measure")
        assert (taken.backend, taken.reason) == ("flash", "the only back-end: flash")

    def test_real_times(self, device):
        """On the device at hand: whatever is taken, the numbers are right."""
        choice.decisions.clear()
        before = choice.decisions.misses
        dtype = torch.float16 if device.type == "cuda" else torch.float32
        q, k, v = inputs(device, 64, width=64, dtype=dtype)
        output, taken = attend(q, k, v, pattern=att.Causal(), choose="measure")
        assert_close(output, ref.by_mask(q, k, v, ref.lower_triangle(64, 64)))
        assert taken.backend in choice.BACKENDS
        assert taken.reason.startswith(("measured: ", "the only back-end"))
        assert choice.decisions.misses == before + 1

    def test_not_while_tracing(self, remembered, device):
        memory, _ = remembered(flash=2.0, math=1.0)
        q, k, v = inputs(device)
        traced = torch.compile(
            lambda *x: attend(*x, choose="measure")[0], backend="aot_eager", fullgraph=True
        )
        assert_close(traced(q, k, v), by_case(q, k, v, CASES["full"]))
        assert memory.misses == 0


class TestAsked:
    def test_which_can(self):
        q, k, v = inputs(CPU)
        arguments = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False}
        one = Call(q, k, v, att.FULL, None, 0.25)
        assert choice.computable(one, arguments) == ["flash", "math"]
        assert choice.computable(one, {**arguments, "dropout_p": 0.5}) == ["math"]

    def test_torch_s_choice_by_default_on_the_cpu(self, device):
        q, k, v = inputs(CPU)
        for options in ({}, {"choose": "rule"}, {"choose": "torch"}, {"path": "sdpa"}):
            taken = attend(q, k, v, **options)[1]
            assert (str(taken), taken.reason) == ("sdpa[no mask, flash]", None)
        with pytest.raises(ValueError, match="choose must be one of rule, measure, torch"):
            attend(q, k, v, choose="luck")

    @pytest.mark.parametrize("kind", [att.MultiHeadAttention, att.FlashAttention3])
    def test_layers(self, remembered, kind):
        remembered(flash=2.0, math=1.0)
        layer = kind(32, 4, choose="measure").eval()
        x = torch.randn(2, 9, 32)
        output = layer(x)
        assert layer.path_taken == "sdpa[no mask, math]"
        layer.choose = "torch"
        assert_close(output, layer(x))
        assert layer.path_taken == "sdpa[no mask, flash]"

    def test_bare_layer(self, remembered):
        remembered(flash=2.0, math=1.0)
        layer = att.FlashAttentionV3(causal=True, choose="measure")
        q, k, v = inputs(CPU)
        assert_close(layer(q, k, v), by_case(q, k, v, CASES["causal"]))
        assert layer.path_taken == "sdpa[is_causal, math]"

    def test_by_name_nothing_is_chosen(self, remembered):
        memory, _ = remembered(flash=1.0, math=2.0)
        q, k, v = inputs(CPU)
        assert attend(q, k, v, path="sdpa_math", choose="measure")[1].backend == "math"
        assert attend(q, k, v, path="explicit", choose="measure")[1].backend is None
        assert memory.misses == 0
