"""SDPA's back-ends: asked, switched off, and which one computes a call.

That is by a rule, or by a measurement that is remembered.

All of them are exact. torch has an order of its own, which is not everywhere that of their speed.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from torchbridge.attention.call import Call, PathRefused
from torchbridge.hardware import Hardware, probe
from torchbridge.lru import LRUCache
from torchbridge.timing import timed

CHOOSE = ("rule", "measure", "torch")
# Scores of a whole call from which on it takes longer than putting back-ends in order (20 us).
LARGE = 2**25
MATH_BYTES = 2**28  # of scores: the math back-end keeps them all
ROUNDS = 5
Seconds = Callable[[Callable[[], object], torch.device], float]


BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
_NAMES = {int(value): name for name, value in BACKENDS.items()}
_ASKED = ("cuda", "xpu")
_choose = getattr(torch, "_fused_sdp_choice", None)


def sdpa(call: Call, arguments: dict[str, Any]) -> Tensor:
    """By the back-end that torch chooses."""
    return F.scaled_dot_product_attention(call.q, call.k, call.v, **arguments)


def chosen(call: Call, arguments: dict[str, Any]) -> str | None:
    """The back-end torch chooses for such a call, by its own word; None if it does not tell."""
    if _choose is None or torch.compiler.is_compiling():
        return None
    if not call.q.is_cpu and call.q.device.type not in _ASKED:
        return None
    return _NAMES.get(int(_choose(call.q, call.k, call.v, **arguments)))


def computable(call: Call, arguments: dict[str, Any]) -> list[str]:
    """The back-ends that would compute this, by torch's own word."""
    return [name for name in BACKENDS if _would(call, arguments, name)]


def _would(call: Call, arguments: dict[str, Any], backend: str) -> bool:
    with sdpa_kernel(BACKENDS[backend]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says why one cannot; another can
        try:
            return chosen(call, arguments) == backend
        except RuntimeError:  # "no available kernel"
            return False


def by_backend(call: Call, arguments: dict[str, Any], backend: str) -> Tensor:
    """With all other back-ends switched off.

    Raises:
        PathRefused: it cannot compute this.
    """
    with sdpa_kernel(BACKENDS[backend]):
        try:
            found = chosen(call, arguments)
            if found in (backend, None):
                return sdpa(call, arguments)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = f"torch has no such kernel for these inputs on {call.q.device.type}"
            raise PathRefused(f"sdpa_{backend}", reason) from error
    raise PathRefused(f"sdpa_{backend}", f"torch takes {found} though all else is switched off")


@dataclass(frozen=True, slots=True)
class Decision:
    """A back-end (None: torch's choice) and why it is taken."""

    backend: str | None
    reason: str | None = None


_TORCHS = Decision(None)


class Decisions(LRUCache[Decision]):
    """What was measured, by class of call. `seconds(work, device)` is how long a call takes."""

    def __init__(self, capacity: int = 64, seconds: Seconds = timed) -> None:
        super().__init__(capacity)
        self._seconds = seconds

    def of(self, call: Call, arguments: dict[str, Any], form: str) -> Decision:
        """The fastest back-end for such calls, measured with this one if none was before."""
        return self.get(_class_of(call, form), lambda: self._measured(call, arguments))

    def _measured(self, call: Call, arguments: dict[str, Any]) -> Decision:
        names = [one for one in computable(call, arguments) if one != "math" or _small(call)]
        if len(names) < 2:
            return Decision(None, f"the only back-end: {', '.join(names) or 'unknown'}")
        times: dict[str, list[float]] = {name: [] for name in names}
        works = {name: _work(call, arguments, name) for name in names}
        for name in names:
            if not _runs(works[name]):  # its kernels are loaded and planned
                del works[name], times[name]
        names = list(works)
        if len(names) < 2:
            return Decision(names[0] if names else None, "the only back-end that runs")
        for number in range(ROUNDS):
            for name in names if number % 2 else reversed(names):
                times[name].append(self._seconds(works[name], call.q.device))
        medians = {name: statistics.median(samples) for name, samples in times.items()}
        order = sorted(medians, key=medians.__getitem__)
        told = ", ".join(f"{name} {1e6 * medians[name]:.0f} us" for name in order)
        return Decision(order[0], f"measured: {told}")


def _runs(work: Callable[[], object]) -> bool:
    """A back-end may say that it can, and fail where its plan is made."""
    try:
        work()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return False
    return True


decisions = Decisions()


def by_choice(
    call: Call, arguments: dict[str, Any], form: str, choose: str
) -> tuple[Tensor, str | None, str | None]:
    """The output, its back-end (None: not told) and why it was taken (None: torch's choice)."""
    decision = _decide(call, arguments, form, choose)
    if decision.backend is not None:
        try:
            output = by_backend(call, arguments, decision.backend)
            return output, decision.backend, decision.reason
        except PathRefused as refusal:
            decision = Decision(None, f"{decision.backend} not taken: {refusal.reason}")
    return sdpa(call, arguments), chosen(call, arguments), decision.reason


def _decide(call: Call, arguments: dict[str, Any], form: str, choose: str) -> Decision:
    if choose == "torch" or torch.compiler.is_compiling():  # nothing is measured while tracing
        return _TORCHS
    if choose == "measure":
        return decisions.of(call, arguments, form)
    if not call.q.is_cuda:
        return _TORCHS
    return rule(_hardware(call.q.device), call, form)


def rule(hardware: Hardware, call: Call, form: str) -> Decision:
    """cuDNN's kernel for large calls on Hopper and sm_100, else torch's choice.

    torch prefers its FlashAttention-2, which does not use what sm_90 brought. On other generations
    it is as fast or faster (https://github.com/huggingface/transformers/pull/48163 has figures of
    six), so that its order stands there.
    """
    narrow = max(call.q.shape[3], call.v.shape[3]) <= 128
    plain = form in ("no mask", "is_causal") and not call.dropout
    half = call.q.dtype in (torch.float16, torch.bfloat16)
    batch, heads, queries, keys = call.scores
    large = batch * heads * queries * keys >= LARGE and queries > 1
    if hardware.vendor != "nvidia" or hardware.capability is None:
        return _TORCHS
    if hardware.capability[0] not in (9, 10) or not (narrow and plain and half and large):
        return _TORCHS
    return Decision("cudnn", f"rule: cuDNN's is SDPA's fastest on {hardware.target}")


@lru_cache
def _hardware(device: torch.device) -> Hardware:
    return probe(device)


def _class_of(call: Call, form: str) -> Hashable:
    """Calls that are taken to be alike: batch and lengths up to the same power of two."""
    batch, heads, queries, keys = call.scores
    rounded = tuple((size - 1).bit_length() for size in (batch, queries, keys))
    widths = heads, call.k.shape[1], call.q.shape[3], call.v.shape[3]
    how = call.dropout > 0, call.wants_gradient, torch.are_deterministic_algorithms_enabled()
    return call.q.device, call.q.dtype, form, rounded, widths, how


def _small(call: Call) -> bool:
    """Do the scores of a call fit the math back-end?"""
    batch, heads, queries, keys = call.scores
    return batch * heads * queries * keys * 4 <= MATH_BYTES


def _work(call: Call, arguments: dict[str, Any], backend: str) -> Callable[[], object]:
    """The call by one back-end, with its backward pass where a gradient is wanted."""
    if not call.wants_gradient:
        return lambda: by_backend(call, arguments, backend)
    leaves = [x.detach().requires_grad_() for x in (call.q, call.k, call.v)]
    copy = replace(call, q=leaves[0], k=leaves[1], v=leaves[2])

    def both() -> object:
        output = by_backend(copy, arguments, backend)
        return torch.autograd.grad(output, leaves, torch.ones_like(output))

    return both
