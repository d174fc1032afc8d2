"""Which paths of attention are taken or refused: back-ends, compiled kernels, packages."""

from __future__ import annotations

import pytest
import torch

from suites import attention_reference as ref
from suites.attention_reference import CASES, NOT_FOR_SDPA, by_case, inputs
from suites.numerics import assert_close
from torchbridge import attention as att
from torchbridge.attention import attend, flex, sdpa
from torchbridge.attention.attend import LONG
from torchbridge.attention.call import Call
from torchbridge.hardware import Hardware

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

HOPPER, ADA, AMPERE = (Hardware.nvidia(c) for c in ((9, 0), (8, 9), (8, 0)))
BLACKWELL = [Hardware.nvidia(c) for c in ((10, 0), (10, 3), (12, 0))]


class TestGradients:
    @pytest.mark.parametrize("name", list(CASES))
    def test_gradcheck(self, device, name):
        q, k, v = (x.requires_grad_() for x in inputs(device, 5, width=3, dtype=torch.float64))
        for path in ["explicit"] if name in NOT_FOR_SDPA else ["explicit", "sdpa"]:
            assert torch.autograd.gradcheck(
                lambda *x, path=path: attend(*x, pattern=CASES[name].pattern, path=path)[0],
                (q, k, v),
                fast_mode=True,
            )

    def test_flex_gradients(self, device):
        if device.type == "cpu":
            pytest.skip("FlexAttention has no CPU backward")
        if flex.why_not_on(device):
            pytest.skip(flex.why_not_on(device))
        gradients = []
        q, k, v = inputs(device, 64)
        for path in ("flex", "explicit"):
            leaves = [x.clone().requires_grad_() for x in (q, k, v)]
            output, _ = attend(*leaves, pattern=CASES["alibi+causal"].pattern, path=path)
            gradients.append(torch.autograd.grad(output.square().sum(), leaves))
        for one, two in zip(*gradients, strict=True):
            assert_close(one, two, 5e-3)  # its matrix products may be tf32


class TestChoice:
    def test_forms(self, device):
        q, k, v = inputs(device)
        forms = {
            "full": ("sdpa", "no mask"),
            "causal": ("sdpa", "is_causal"),
            "sliding_window": ("sdpa", "mask"),
            "alibi": ("sdpa", "bias"),
            "soft_cap": ("explicit", "scores"),
            "custom": ("explicit", "scores"),
        }
        for name, expected in forms.items():
            _, taken = attend(q, k, v, pattern=CASES[name].pattern)
            assert (taken.name, taken.form, taken.fallback) == (*expected, None)
        output, taken = attend(q, k, v, pattern=att.Custom(mask=ref.thirds))
        assert (taken.name, taken.form) == ("sdpa", "mask")
        assert_close(output, by_case(q, k, v, ref.Case(att.FULL, CASES["custom"].seen)))

    def test_long_patterns_are_worth_a_kernel(self):
        q = torch.zeros(1, 1, 1024, 8, requires_grad=True)
        assert q.shape[2] ** 2 == LONG
        _, taken = attend(q, q, q, pattern=att.SlidingWindow(8))
        assert (taken.name, taken.form) == ("sdpa", "mask")
        assert taken.fallback == "FlexAttention has no CPU backward"
        assert str(taken).endswith("(FlexAttention has no CPU backward)")
        shorter = q[:, :, :1023]
        assert attend(shorter, shorter, shorter, pattern=att.SlidingWindow(8))[1].fallback is None

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"mask": torch.ones(23, 23, dtype=torch.bool)}, "takes patterns, not dense masks"),
            ({"dropout": 0.5}, "has no dropout"),
        ],
    )
    def test_flex_is_refused(self, options, reason):
        q, k, v = inputs(torch.device("cpu"))
        with pytest.raises(att.PathRefused, match=reason):
            attend(q, k, v, path="flex", **options)
        with pytest.raises(ValueError, match=r"path must be one of auto, sdpa.*'fast'"):
            attend(q, k, v, path="fast")

    @pytest.mark.parametrize(("queries", "keys"), [(0, 4), (4, 0)])
    @pytest.mark.parametrize("path", ["flex", "flex_eager"])
    def test_flex_of_nothing(self, queries, keys, path):
        """A call without queries or keys is refused if its path is named.

        If no path is named, the output is empty or zero.
        """
        q, k = torch.randn(2, 2, queries, 8), torch.randn(2, 2, keys, 8)
        for pattern in (att.FULL, att.SlidingWindow(2), att.ALiBi(2)):
            with pytest.raises(att.PathRefused, match="needs a query and a key"):
                attend(q, k, k, pattern=pattern, path=path)
            output, _ = attend(q, k, k, pattern=pattern)
            assert torch.equal(output, torch.zeros(2, 2, queries, 8))

    def test_flex_on_devices(self):
        assert flex.why_not_on(torch.device("meta")) == "FlexAttention has no kernel for meta"
        assert flex.why_not_on(torch.device("cpu"), compiled=False) is None

    def test_arguments_that_do_not_fit(self):
        q = torch.zeros(2, 4, 6, 8)
        for k, v in ((q[:1], q[:1]), (q[..., :7], q)):
            with pytest.raises(ValueError, match="do not fit each other"):
                attend(q, k, v)
        with pytest.raises(ValueError, match=r"padding is \[batch, 1, 1, keys\]"):
            attend(q, q, q, mask=torch.ones(2, 6, dtype=torch.bool))
        with pytest.raises(ValueError, match=r"bool \(True: seen\) or a float"):
            attend(q, q, q, mask=torch.ones(6, 6, dtype=torch.int64))
        with pytest.raises(ValueError, match="slopes for 8 heads, not for 4"):
            attend(q, q, q, pattern=att.ALiBi(8))
        with pytest.raises(ValueError, match="do not fit a batch of 2 with 6"):
            attend(q, q, q, pattern=att.DocumentMasking(torch.zeros(2, 5, dtype=torch.int64)))
        for wrong in (lambda: att.SlidingWindow(0), lambda: att.SoftCap(0.0), att.Custom):
            with pytest.raises(ValueError, match=r"at least 1|above 0|needs a mask"):
                wrong()


class TestBackends:
    @pytest.mark.parametrize("backend", ["flash", "efficient", "cudnn", "math"])
    def test_by_name_it_is_that_one_or_refused(self, device, backend):
        dtype = torch.float16 if device.type == "cuda" else torch.float32
        q, k, v = inputs(device, 64, width=64, dtype=dtype)
        try:
            output, taken = attend(q, k, v, pattern=att.Causal(), path=f"sdpa_{backend}")
        except att.PathRefused as refusal:
            pytest.skip(str(refusal))
        assert (taken.name, taken.backend) == (f"sdpa_{backend}", backend)
        expected = ref.by_mask(q, k, v, ref.lower_triangle(64, 64))
        assert_close(output, expected)

    def test_the_cpu_has_two(self):
        q, k, v = inputs(torch.device("cpu"))
        for backend in ("efficient", "cudnn"):
            with pytest.raises(att.PathRefused, match="no such kernel for these inputs on cpu"):
                attend(q, k, v, path=f"sdpa_{backend}")
        for backend in ("flash", "math"):
            output, taken = attend(q, k, v, path=f"sdpa_{backend}")
            assert taken.backend == backend
            assert_close(output, ref.by_mask(q, k, v))
        assert attend(q, k, v, dropout=0.5)[1].backend == "math"
        assert str(attend(q, k, v)[1]) == "sdpa[no mask, flash]"


class TestRule:
    """The rule that chooses between the back-ends of SDPA."""

    def call(self, sequence: int = 2048, *, dtype=torch.bfloat16, width=64, **options) -> Call:
        """Return a call on the meta device with 2 samples and 8 heads."""
        x = torch.empty(2, 8, sequence, width, dtype=dtype, device="meta")
        return Call(x, x, x, att.FULL, None, 0.125, **options)

    def test_large_calls_on_hopper(self):
        told = "rule: cuDNN's is SDPA's fastest on sm_"
        for hardware in (HOPPER, BLACKWELL[0]):
            for form in ("no mask", "is_causal"):
                backend, reason = sdpa.rule(hardware, self.call(), form)
                assert (backend, reason) == ("cudnn", told + hardware.target.removeprefix("sm_"))

    def test_what_stays_torchs(self):
        others = [ADA, AMPERE, BLACKWELL[2], Hardware.amd("gfx942"), Hardware.cpu(("avx2",))]
        for hardware in (*others, Hardware("nvidia", "?", "?")):
            assert sdpa.rule(hardware, self.call(), "is_causal") == (None, None)
        longest = int((sdpa.LARGE / 16) ** 0.5)
        assert 16 * longest**2 <= sdpa.LARGE < 16 * (longest + 1) ** 2
        q = torch.empty(64, 32, 1, 64, dtype=torch.bfloat16, device="meta")
        keys = torch.empty(64, 32, 2**15, 64, dtype=torch.bfloat16, device="meta")
        for call, form in (
            (self.call(), "mask"),
            (self.call(), "bias"),
            (self.call(dtype=torch.float32), "no mask"),
            (self.call(width=160), "no mask"),
            (self.call(dropout=0.1), "no mask"),
            (self.call(longest - 1), "no mask"),
            (Call(q, keys, keys, att.FULL, None, 1.0), "no mask"),  # one query each
        ):
            assert sdpa.rule(HOPPER, call, form) == (None, None)
        assert sdpa.rule(HOPPER, self.call(longest + 1), "no mask")[0] == "cudnn"

    def test_another_flash_attention_that_was_switched_on_is_left_to_torch(self, monkeypatch):
        monkeypatch.setattr(sdpa, "_switched", lambda: "FA3")
        assert sdpa.rule(HOPPER, self.call(), "no mask") == (None, None)

    def test_it_is_heeded_or_told(self, monkeypatch):
        """If torch lacks the back-end of the rule, torch chooses one, and the reason is given."""
        q, k, v = inputs(torch.device("cpu"))
        monkeypatch.setattr(sdpa, "rule", lambda *_: ("math", "rule"))
        output, taken = attend(q, k, v)
        assert (taken.backend, taken.reason) == ("math", "rule")
        assert_close(output, by_case(q, k, v, CASES["full"]))
        monkeypatch.setattr(sdpa, "rule", lambda *_: ("cudnn", "rule"))
        output, taken = attend(q, k, v)
        assert_close(output, by_case(q, k, v, CASES["full"]))
        assert (taken.backend, taken.fallback) == ("flash", None)
        assert taken.reason.startswith("cudnn not taken: torch has no such kernel")
        assert attend(q, k, v, path="sdpa")[1].reason is None  # a path by name has no reason
        traced = torch.compile(lambda *x: attend(*x)[0], backend="aot_eager", fullgraph=True)
        assert_close(traced(q, k, v), by_case(q, k, v, CASES["full"]))


class TestCompiled:
    @pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # by inductor
    def test_flex_kernel(self, device):
        if flex.why_not_on(device):
            pytest.skip(flex.why_not_on(device))
        q, k, v = inputs(device, 1024, batch=1, heads=2, groups=1)
        output, taken = attend(q, k, v, pattern=att.CausalSlidingWindow(40))
        assert str(taken) == "flex[block mask]"
        mask = ref.lower_triangle(1024, 1024) & ~ref.lower_triangle(1024, 1024).tril(-40)
        assert_close(output, ref.by_mask(q, k, v, mask), 2e-3 if device.type == "cuda" else None)

    @pytest.mark.parametrize(
        ("pattern", "length", "name"),
        [
            (att.ALiBi(4), 9, "sdpa"),
            (att.SoftCap(2.0), 9, "explicit"),
            (att.ALiBi(4) & att.SlidingWindow(40), 1024, "flex"),
            (att.DocumentMasking(torch.arange(1024) // 300), 1024, "flex"),
        ],
        ids=lambda one: getattr(one, "name", one),
    )
    def test_layers_are_traced_whole(self, device, pattern, length, name):
        if name == "flex" and flex.why_not_on(device):
            pytest.skip(flex.why_not_on(device))
        layer = att.MultiHeadAttention(32, 4, pattern=pattern).to(device).eval()
        traced = torch.compile(layer, backend="aot_eager", fullgraph=True)
        x = torch.randn(2, length, 32, device=device)
        with torch.no_grad():
            actual = traced(x)
            assert layer.path_taken.startswith(name)
            layer.path = "explicit"
            assert_close(actual, layer(x))

    @pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # by inductor
    def test_a_window_in_a_compiled_block(self, device):
        """The kernel and its block mask are part of the compiled graph of the block."""
        if flex.why_not_on(device):
            pytest.skip(flex.why_not_on(device))
        layer = att.MultiHeadAttention(32, 2, pattern=att.CausalSlidingWindow(40)).to(device).eval()
        x = torch.randn(1, 1024, 32, device=device)
        with torch.no_grad():
            actual = torch.compile(lambda x: layer(x) + x, fullgraph=True)(x)
            layer.path = "explicit"
            assert_close(actual, layer(x) + x, 2e-3 if device.type == "cuda" else None)


class TestOutOfMemory:
    """Running out of memory is no refusal: the fallback, a dense mask, needs even more memory."""

    @pytest.mark.parametrize("where", ["kernel", "block mask", "compiler"])
    def test_it_is_not_answered_by_a_dense_mask(self, monkeypatch, where):
        def fail(*_, **__):
            error = torch.OutOfMemoryError("16 GiB more")
            if where != "compiler":
                raise error
            raise RuntimeError("backend 'inductor' failed") from error

        if where == "block mask":
            monkeypatch.setattr(flex, "block_mask", fail)
        else:
            monkeypatch.setattr(flex, "_kernel", lambda kind: fail)
        monkeypatch.setattr(flex, "why_not_on", lambda device, compiled=True: None)
        flex.block_masks.clear()
        q = torch.zeros(1, 1, 1024, 8)
        with pytest.raises(torch.OutOfMemoryError, match="16 GiB more"):
            attend(q, q, q, pattern=att.SlidingWindow(8))
