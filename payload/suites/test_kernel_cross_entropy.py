"""Linear layer and cross-entropy in chunks: numbers, memory, refusals; and the Triton kernel."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from suites import interpreter, kernel_reference
from suites.covering import pairwise
from suites.interpreter import needs_triton
from suites.numerics import assert_close, needs_cuda
from torchbridge.hardware import Hardware
from torchbridge.kernels import REGISTRY, KernelRefused, Request, linear_cross_entropy
from torchbridge.kernels.cross_entropy import chunk_rows, rows_by_library_

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SETTINGS = {
    "plain": {},
    "smoothed": {"label_smoothing": 0.1},
    "z-loss": {"z_loss": 0.01},
    "all": {"label_smoothing": 0.2, "z_loss": 0.003, "ignore_index": 2},
}
REDUCTIONS = ["mean", "sum", "none"]


def draw(device, tokens: int = 150, width: int = 33, classes: int = 301, dtype=torch.float32):
    """Return x, weight and targets; a seventh of the targets are to be ignored."""
    x = torch.randn(tokens, width, device=device).to(dtype).requires_grad_()
    weight = (torch.randn(classes, width, device=device) / width**0.5).to(dtype).requires_grad_()
    target = torch.randint(classes, (tokens,), device=device)
    target[::7] = -100
    return x, weight, target


def upstream_of(loss: Tensor) -> Tensor:
    """Return gradients of the loss with distinct values, to expose a missing or doubled factor."""
    return torch.linspace(0.5, 3, loss.numel(), device=loss.device).reshape(loss.shape).to(loss)


def compare(x: Tensor, weight: Tensor, target: Tensor, tolerance=None, **settings) -> None:
    """Check the loss and both gradients against autograd of the float64 reference."""
    how = {one: settings[one] for one in settings if one not in ("rows", "path")}
    loss = linear_cross_entropy(x, weight, target, **settings)
    upstream = upstream_of(loss)
    actual = torch.autograd.grad(loss, (x, weight), upstream)
    inputs = kernel_reference.leaves(x, weight)
    expected = kernel_reference.cross_entropy(*inputs, target, **how)
    assert loss.dtype == (torch.float64 if x.dtype == torch.float64 else torch.float32)
    assert_close(loss, expected, tolerance or {torch.float64: 1e-12}.get(x.dtype, 3e-3))
    wanted = kernel_reference.gradients(expected, inputs, upstream)
    for one, should, like in zip(actual, wanted, (x, weight), strict=True):
        assert one.dtype == like.dtype
        assert_close(one, should, tolerance)


class TestNumbers:
    @pytest.mark.parametrize(("dtype", "reduction", "name"), pairwise(DTYPES, REDUCTIONS, SETTINGS))
    def test_against_the_definition(self, device, dtype, reduction, name):
        x, weight, target = draw(device, dtype=dtype)
        target[::7] = SETTINGS[name].get("ignore_index", -100)
        compare(x, weight, target, reduction=reduction, **SETTINGS[name])

    @pytest.mark.parametrize(("tokens", "rows"), pairwise([1, 33, 64, 65], [1, 16, 64, 1000]))
    def test_chunks_change_nothing(self, device, tokens, rows):
        x, weight, target = draw(device, tokens, 9, 40, torch.float64)
        target[0] = 3
        compare(x, weight, target, rows=rows, label_smoothing=0.1, z_loss=0.1)

    def test_shapes_and_strides(self, device):
        x, weight, target = draw(device, tokens=60)
        x, weight = x.detach(), weight.detach()
        target = target.reshape(4, 15)
        shaped = x.reshape(4, 15, -1)
        flat = linear_cross_entropy(x, weight, target.flatten(), reduction="none")
        losses = linear_cross_entropy(shaped, weight, target, reduction="none")
        assert torch.equal(losses, flat.reshape(4, 15))
        turned = shaped.permute(2, 0, 1).contiguous().permute(1, 2, 0)
        other = linear_cross_entropy(turned, weight.T.contiguous().T, target, reduction="none")
        assert_close(other, losses, 1e-6)

    def test_everything_ignored(self, device):
        x, weight, target = draw(device, tokens=8)
        target[:] = -100
        assert linear_cross_entropy(x, weight, target).isnan()  # as torch's mean over nothing
        loss = linear_cross_entropy(x, weight, target, reduction="sum")
        assert loss.item() == 0
        assert all(not one.any() for one in torch.autograd.grad(loss, (x, weight)))

    def test_no_tokens(self, device):
        x, weight, target = draw(device, tokens=0)
        loss = linear_cross_entropy(x, weight, target, reduction="sum")
        assert loss.item() == 0
        assert not torch.autograd.grad(loss, weight)[0].any()

    def test_large_logits(self, device):
        """The logits are so large that e^logit overflows in float32."""
        x, weight, target = draw(device, dtype=torch.float64)
        compare(
            (40 * x).detach().float().requires_grad_(),
            weight.detach().float().requires_grad_(),
            target,
        )

    def test_a_scaled_loss_saves_small_gradients_of_float16(self, device):
        """A scaled loss keeps small gradients of float16.

        1 / 20,000 of a probability of 1 / 300 underflows in float16; 65,536 times as much does not.
        """
        x, weight, target = draw(device, 20_000, 4, 300, torch.float16)
        x_grad, weight_grad = torch.autograd.grad(
            linear_cross_entropy(x, weight, target), (x, weight), torch.tensor(65536.0)
        )
        inputs = kernel_reference.leaves(x, weight)
        expected = kernel_reference.cross_entropy(*inputs, target)
        wanted = kernel_reference.gradients(expected, inputs, torch.tensor(65536.0))
        assert_close(x_grad, wanted[0])
        assert_close(weight_grad, wanted[1], 5e-3)  # eight sums in float16

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_nothing_is_left_to_multiply_but_of_float16(self, device, dtype):
        loss = linear_cross_entropy(*draw(device, 7, dtype=dtype))
        factor = 1 / 6 if dtype == torch.float16 else 1
        assert loss.grad_fn.saved_tensors[0].item() == pytest.approx(factor)

    def test_what_lies_behind_a_row_is_nothing(self, device, monkeypatch):
        """NaN behind the end of a row has no effect, though bfloat16 products multiply it by 0."""

        def dirty(x: Tensor, *size, dtype=None) -> Tensor:
            shape = size if isinstance(size[0], int) else size[0]
            return x.new_full(shape, float("nan"), dtype=dtype)

        monkeypatch.setattr(Tensor, "new_empty", dirty)
        compare(*draw(device, dtype=torch.bfloat16))


class TestAutograd:
    def test_gradcheck(self, device):
        """Gradients of the one form that can be differentiated repeatedly pass gradcheck."""
        x, weight, target = draw(device, 9, 4, 6, torch.float64)

        def function(x, weight):
            how = {"reduction": "none", "label_smoothing": 0.1, "z_loss": 0.1, "rows": 4}
            return linear_cross_entropy(x, weight, target % 6, **how)

        assert torch.autograd.gradcheck(function, (x, weight))

    def test_only_what_learns_gets_a_gradient(self, device):
        x, weight, target = draw(device)
        both = torch.autograd.grad(linear_cross_entropy(x, weight, target), (x, weight))
        for frozen, place in ((weight, 0), (x, 1)):
            frozen.requires_grad_(False)
            loss = linear_cross_entropy(x, weight, target)
            one = torch.autograd.grad(loss, (x, weight)[place])[0]
            assert torch.equal(one, both[place])
            frozen.requires_grad_()

    def test_without_gradients_none_are_made(self, device):
        x, weight, target = draw(device)
        with torch.no_grad():
            loss = linear_cross_entropy(x, weight, target)
        assert not loss.requires_grad
        assert_close(loss, linear_cross_entropy(x, weight, target), 1e-6)

    def test_a_second_backward_is_refused(self, device):
        x, weight, target = draw(device)
        loss = linear_cross_entropy(x, weight, target)
        loss.backward(retain_graph=True)
        kept = weight.grad.clone()
        with pytest.raises(RuntimeError, match="gives away the gradients"):
            loss.backward()
        assert torch.equal(weight.grad, kept)
        losses = linear_cross_entropy(x, weight, target, reduction="none")
        first, second = (
            torch.autograd.grad(losses.sum(), weight, retain_graph=True)[0] for _ in range(2)
        )
        assert torch.equal(first, second)

    @pytest.mark.parametrize("reduction", REDUCTIONS)
    def test_a_second_derivative_is_refused(self, device, reduction):
        x, weight, target = draw(device)
        loss = linear_cross_entropy(x, weight, target, reduction=reduction).sum()
        with pytest.raises(RuntimeError, match="has no second derivative"):
            torch.autograd.grad(loss, x, create_graph=True)

    def test_autocast_multiplies_in_16_bit(self, device):
        x, weight, target = draw(device)
        with torch.autocast(device.type, torch.bfloat16):
            loss = linear_cross_entropy(x, weight, target)
        inside = linear_cross_entropy(x.bfloat16(), weight.bfloat16(), target)
        assert torch.equal(loss, inside)
        gradient = torch.autograd.grad(loss, weight)[0]
        assert gradient.dtype == torch.float32
        assert_close(gradient, torch.autograd.grad(inside, weight)[0])

    @pytest.mark.parametrize("reduction", REDUCTIONS)
    def test_compiled_in_one_graph(self, device, reduction):
        x, weight, target = draw(device)

        def work(x, weight):
            loss = linear_cross_entropy(2 * x, weight, target, reduction=reduction, z_loss=0.01)
            return 3 * loss.mean()

        compiled = torch.compile(work, backend="aot_eager", fullgraph=True)
        loss, expected = compiled(x, weight), work(x, weight)
        assert_close(loss, expected, 1e-6)
        pairs = (torch.autograd.grad(one, (x, weight)) for one in (loss, expected))
        for one, should in zip(*pairs, strict=True):
            assert_close(one, should, 1e-6)


class TestMemory:
    def test_a_fraction_of_the_plain_way(self):
        """The peak memory is at most a tenth of that of torch's functions.

        Torch's functions allocate about three times the logits of 1,024 tokens and 8,192 classes.
        """
        x, weight, target = draw(torch.device("cpu"), 1024, 64, 8192)
        logits = 1024 * 8192 * 4

        def ours() -> None:
            linear_cross_entropy(x, weight, target).backward()

        def plain() -> None:
            F.cross_entropy(F.linear(x, weight), target).backward()

        ours_peak, plain_peak = (kernel_reference.peak_bytes(work) for work in (ours, plain))
        assert plain_peak >= 2 * logits
        assert logits / 8 <= ours_peak <= 0.1 * plain_peak

    @needs_cuda()
    def test_a_fraction_of_the_compiled_way(self, device):
        x, weight, target = draw(device, 16_384, 2048, 131_072, torch.bfloat16)
        peaks = []
        plain = torch.compile(lambda x, w, t: F.cross_entropy(F.linear(x, w).float(), t))
        for work in (linear_cross_entropy, plain):
            work(x, weight, target).backward()  # compiles
            x.grad = weight.grad = None
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            work(x, weight, target).backward()
            peaks.append(torch.cuda.max_memory_allocated() - before)
            x.grad = weight.grad = None
        assert peaks[0] <= 0.3 * peaks[1]

    def test_chunks_are_an_eighth_but_worth_a_product(self):
        assert [chunk_rows(tokens, "cpu") for tokens in (1, 512, 513, 4096)] == [64, 64, 128, 512]
        sizes = (0, 1, 2048, 2049, 4096, 16_384, 32_768)
        rows = [chunk_rows(tokens, "cuda") for tokens in sizes]
        assert rows == [64, 64, 2048, 1088, 2048, 2048, 4096]


class TestRefusals:
    def test_settings_are_checked(self, device):
        x, weight, target = draw(device, tokens=6)
        for settings, reason in (
            ({"reduction": "median"}, "got 'median'"),
            ({"label_smoothing": 1.5}, "from 0 to 1, got 1.5"),
        ):
            with pytest.raises(ValueError, match=reason):
                linear_cross_entropy(x, weight, target, **settings)
        with pytest.raises(ValueError, match=r"\(6, 33\), \(301, 33\), \(5,\)"):
            linear_cross_entropy(x, weight, target[:5])
        with pytest.raises(ValueError, match=r"x is torch.float32, weight torch.float16"):
            linear_cross_entropy(x, weight.half(), target)

    def test_a_target_that_is_no_class_is_refused(self):
        x, weight, target = draw(torch.device("cpu"), tokens=6)
        target[2] = 301
        with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
            linear_cross_entropy(x, weight, target)

    def test_paths(self):
        x, weight, target = draw(torch.device("cpu"), tokens=6)
        by_name = linear_cross_entropy(x, weight, target, path="torch")
        assert torch.equal(by_name, linear_cross_entropy(x, weight, target))
        with pytest.raises(KernelRefused, match="needs amd or nvidia; this is cpu"):
            linear_cross_entropy(x, weight, target, path="triton")
        for gradient in (False, True):
            request = Request(Hardware.nvidia((8, 0)), torch.bfloat16, gradient)
            assert REGISTRY.lookup("linear_cross_entropy", request).kernel.name == "triton"


@needs_triton
class TestTriton:
    """The kernel between the products; the library computes the products on every path."""

    @pytest.mark.parametrize(
        ("classes", "dtype", "name", "room"),
        pairwise([3, 4096, 4999], DTYPES[1:], list(SETTINGS), [1, 64]),
    )
    def test_rows(self, device, dtype, name, classes, room):
        logits = (3 * torch.randn(6, classes, device=device)).to(dtype)
        target = torch.tensor([0, classes - 1, -100, 1, 2, 0], device=device)
        scale = torch.rand(6, device=device)
        wanted = logits.double().cpu().requires_grad_()
        eye = torch.eye(classes, dtype=torch.float64)
        how = {"ignore_index": -100, **SETTINGS[name]}
        target[2] = how["ignore_index"]
        expected = kernel_reference.cross_entropy(wanted, eye, target, reduction="none", **how)
        gradient = torch.autograd.grad(expected, wanted, scale.double().cpu())[0]
        settings = (how["ignore_index"], how.get("label_smoothing", 0.0), how.get("z_loss", 0.0))
        function, room = "cross_entropy.rows_in_triton_", -(-classes // room) * room
        given = torch.full((6, room), float("nan"), dtype=dtype, device=device)[:, :classes]
        given.copy_(logits)
        bare, same = interpreter.run(function, given, target, None, *settings, room)
        assert torch.equal(same, logits)
        losses, changed = interpreter.run(function, given, target, scale, *settings, room)
        assert torch.equal(bare, losses)
        assert_close(losses, expected.detach(), 1e-6)
        assert_close(changed, gradient)
        assert not changed.as_strided((6, room), (room, 1))[:, classes:].any()

    @pytest.mark.parametrize("reduction", REDUCTIONS)
    def test_whole(self, device, reduction):
        x, weight, target = draw(device, 70, 21, 777)
        how = {"reduction": reduction, "label_smoothing": 0.1, "z_loss": 0.01}
        upstream = upstream_of(target.float() if reduction == "none" else torch.ones(()))
        function = "cross_entropy.in_triton"
        loss, actual = interpreter.differentiate(
            function, upstream.to(device), x, weight, target, **how
        )
        inputs = kernel_reference.leaves(x, weight)
        expected = kernel_reference.cross_entropy(*inputs, target, **how)
        assert_close(loss, expected)
        wanted = kernel_reference.gradients(expected, inputs, upstream)
        for one, should in zip(actual, wanted, strict=True):
            assert_close(one, should)

    def test_odd_rows_are_read_16_bytes_at_a_time(self, tmp_path, monkeypatch):
        from suites.triton_kernels import compile_of

        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
        ptx = compile_of("cross_entropy", "rows-bf16-gradient", "sm_90").asm["ptx"]
        assert ptx.count("ld.global.v4") >= 4
        assert ptx.count("ld.global.b16") <= 1  # the label's

    @pytest.mark.parametrize("dtype", DTYPES[1:])
    def test_multiplied_in_place(self, device, dtype):
        x = torch.randn(70_001, device=device).to(dtype)
        for number in (1.0, 0.3):
            wanted, factor = (x.float() * number).to(dtype), torch.tensor(number, device=device)
            x = interpreter.run("cross_entropy.multiply_in_triton_", x, factor)
            assert torch.equal(x, wanted)

    @pytest.mark.parametrize(("way", "smoothing"), pairwise(["triton", "torch"], [0.0, 0.1]))
    def test_logits_of_minus_infinity(self, device, way, smoothing):
        """Logits of -inf fill a whole block; in two rows the label is among them."""
        logits = torch.randn(3, 4999, device=device)
        logits[:2, :4100] = -float("inf")
        target = torch.tensor([4200, 7, 7], device=device)
        wanted = logits.double().requires_grad_()
        expected = F.cross_entropy(wanted, target, reduction="none", label_smoothing=smoothing)
        expected.sum().backward()
        given = (logits, target, torch.ones(3, device=device), -100, smoothing, 0.0)
        if way == "triton":
            made = interpreter.run("cross_entropy.rows_in_triton_", *given)
        else:
            made = rows_by_library_(*given)
        for one, should in zip(made, (expected.detach(), wanted.grad), strict=True):
            torch.testing.assert_close(one.double(), should, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("wrong", [50, -1])
    def test_a_target_that_is_no_class_gives_nan(self, device, wrong):
        x, weight, _ = draw(device, 4, 8, 50)
        target = torch.tensor([3, wrong, -100, 49], device=device)
        ones = torch.ones(4, device=device)
        losses, (x_grad, _) = interpreter.differentiate(
            "cross_entropy.in_triton", ones, x, weight, target, reduction="none"
        )
        assert losses.isnan().tolist() == [False, True, False, False]
        assert x_grad.isnan().any(1).tolist() == [False, True, False, False]

    def test_logits_must_be_rows(self):
        from torchbridge.kernels.cross_entropy import rows_in_triton_

        with pytest.raises(ValueError, match=r"logits \(4, 3\) of torch.float32, \(1, 4\)"):
            rows_in_triton_(torch.zeros(3, 4).T, torch.zeros(4).long(), None)
