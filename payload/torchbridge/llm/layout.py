"""Store weights so that a CPU reads them fast for a single token, where reading takes all the time.

BLAS gives a single-row product to one thread, which cannot use the full memory bandwidth. Split
along the summed dimension, a weight stored along its outputs is one contiguous block per thread.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchbridge.llm.gpt2 import GPT2, TokenTable
from torchbridge.passes import PassResult, Setting
from torchbridge.timing import Comparison, compare

WORTH = 1.05  # times as fast, at the low end of what was measured


def row_product(x: Tensor, weight: Tensor, bias: Tensor | None, parts: int) -> Tensor:
    """Compute x [..., K] @ weight [N, K]^T + bias [N] or None; a single row is split in `parts`.

    The weight is stored along N, and `parts` divides K. More rows use all threads without a split.
    """
    depth = x.shape[-1]
    if x.numel() != depth:
        return F.linear(x, weight, bias)
    rows, blocks = x.reshape(parts, 1, -1), weight.T.view(parts, depth // parts, -1)
    sums = torch.bmm(rows, blocks).sum(dim=0)
    output = sums if bias is None else sums + bias
    return output.view(*x.shape[:-1], -1)


class SplitLinear(nn.Linear):
    """Linear layer that shares another's parameters and splits a single row in `parts`."""

    def __init__(self, linear: nn.Linear, parts: int) -> None:
        super().__init__(linear.in_features, linear.out_features, device="meta")
        self.weight, self.bias, self.parts = linear.weight, linear.bias, parts

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., K] to [..., N]."""
        return row_product(x, self.weight, self.bias, self.parts)


class SplitTokenTable(TokenTable):
    """Token embedding that shares another's weight; its head splits a single row in `parts`."""

    def __init__(self, table: TokenTable, parts: int) -> None:
        super().__init__(1, 1)
        self.weight, self.parts = table.weight, parts

    def logits(self, features: Tensor) -> Tensor:
        """Map features [..., d] to logits [..., V]."""
        return row_product(features, self.weight, None, self.parts)


def lay_out(model: nn.Module, setting: Setting) -> tuple[nn.Module, PassResult]:
    """Store float32 weights [N, K] along N, in place, which a CPU reads faster for a single token.

    Shapes and values do not change. The head is a third of what a token reads.
    """
    if setting.device.type != "cpu":
        return model, PassResult("lay_out", False, reason="only a CPU gains by it")
    for one in _wide(model):
        one.weight.data = one.weight.data.T.contiguous().T
    turned = sum(one.weight.stride(0) == 1 for one in _wide(model))
    if not turned:
        return model, PassResult("lay_out", False, reason="no linear layer in float32")
    return model, PassResult("lay_out", True, f"{turned} weights stored along their outputs")


def split_rows(model: GPT2, setting: Setting) -> tuple[GPT2, PassResult]:
    """Split products of a single row into one part per thread, in place, if that is faster here.

    It is measured on the model's weights, so two runs of a program may differ in the last bits.
    """
    if reason := _no_split(model, setting):
        return model, PassResult("split_rows", False, reason=reason)
    parts = torch.get_num_threads()
    measured = _gain(model, parts)
    ratio, least = statistics.median(measured.ratios), measured.interval()[0]
    message = f"in {parts} parts a row is {ratio:.2f}x as fast, {least:.2f}x at least"
    if least < WORTH:
        return model, PassResult("split_rows", False, reason=f"{message}: under {WORTH}x")
    count = split(model, parts)
    return model, PassResult("split_rows", True, f"{count} products: {message}")


def split(model: GPT2, parts: int) -> int:
    """Split all products of a single row in `parts`, in place; return their number.

    They are those of float32 weights that `lay_out` transposed and whose K is divisible by `parts`.
    """
    count, cuttable = 0, _cuttable(model, parts)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if child in cuttable:
                kind = SplitLinear if isinstance(child, nn.Linear) else SplitTokenTable
                setattr(parent, name, kind(child, parts))
                count += 1
    return count


def _wide(model: nn.Module) -> list[nn.Linear | TokenTable]:
    """The layers with a float32 matrix of their own kind."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | TokenTable)]
    return [layer for layer in layers if layer.weight.dtype == torch.float32]


def _cuttable(model: nn.Module, parts: int) -> list[nn.Linear | TokenTable]:
    whole = [one for one in _wide(model) if not isinstance(one, SplitLinear | SplitTokenTable)]
    turned = [one for one in whole if one.weight.stride(0) == 1]
    return [one for one in turned if one.weight.shape[1] % parts == 0]


def _no_split(model: nn.Module, setting: Setting) -> str | None:
    if setting.device.type != "cpu":
        return "only a CPU gains by it"
    threads = torch.get_num_threads()
    if threads == 1:
        return "there is one thread"
    if any(isinstance(module, SplitLinear | SplitTokenTable) for module in model.modules()):
        return "its rows are split already"
    if not _cuttable(model, threads):
        return f"no float32 weight whose sums {threads} threads divide"
    return None


@torch.no_grad()
def _gain(model: nn.Module, parts: int) -> Comparison:
    """A row through all weights, in parts against whole: so many that none stays in a cache."""
    layers = _cuttable(model, parts)
    rows = {layer.weight.shape[1]: torch.ones(1, layer.weight.shape[1]) for layer in layers}

    def cut(weights: Iterable[Tensor]) -> None:
        for weight in weights:
            row_product(rows[weight.shape[1]], weight, None, parts)

    def whole(weights: Iterable[Tensor]) -> None:
        for weight in weights:
            F.linear(rows[weight.shape[1]], weight)

    weights = [layer.weight for layer in layers]
    arms = partial(cut, weights), partial(whole, weights)
    for arm in arms:
        arm()
    return compare(*arms, device=torch.device("cpu"), pairs=15, at_least=7, budget_s=1.5)
