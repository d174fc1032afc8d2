"""Run optimization passes; record evidence that each changed the model, or why it did not.

Evidence is read from the model after the pass. Whether a pass makes a model faster depends on the
model, the inputs and the machine. So passes whose only purpose is speed are measured if sample
inputs and time (`Setting.measure_s`) are given: the pass is applied to a copy, whose outputs must
agree and whose calls are timed in turn with the original's. A pass without other cost is kept
unless it is slower: the confidence interval of its speedup lies below 1 and reaches below
`UNNOTICED`. A pass that costs precision or compilation is kept only if the whole interval lies
above 1. Every pass is measured against the model that the previous passes left, and a level starts
with the passes of the level below, so no level is slower than the one below it, within the
measurement's resolution. A kept pass is then applied to the model itself.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchbridge import numbers
from torchbridge.hardware import Hardware
from torchbridge.timing import Clock, Ratio, compare, warm_up

UNNOTICED = 0.97  # of the previous speed: a smaller loss is ignored
QUADS = 200  # at most, and
LEAST_QUADS = 6  # regardless of time: fewer give no 95 % interval
# largest relative difference that a pass may make to the outputs, by the model's coarsest numbers
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}
FP8_TOLERANCE = 0.1


def suffices(effect: Ratio, *, costly: bool) -> bool:
    """Return whether a pass with this speedup is kept, by the rule in this module's docstring."""
    if costly:
        return effect.low > 1
    return effect.high >= 1 or effect.low >= UNNOTICED


@dataclass(frozen=True, slots=True)
class PassResult:
    """Outcome of one pass.

    `evidence` is what was observed on the model afterwards; `reason` says why the pass was not
    applied. `seconds` is the duration of the pass without the measurement of its `effect`.

    Raises:
        ValueError: applied without evidence, or not applied without a reason.
    """

    name: str
    applied: bool
    evidence: str = ""
    reason: str | None = None
    seconds: float = 0.0
    effect: Ratio | None = None

    def __post_init__(self) -> None:
        if self.applied and (not self.evidence or self.reason is not None):
            raise ValueError(f"pass {self.name!r} was applied: it needs evidence, and no reason")
        if not self.applied and (self.evidence or not self.reason):
            raise ValueError(f"pass {self.name!r} was not applied: it needs a reason, no evidence")


@dataclass(frozen=True, slots=True)
class Setting:
    """What passes read of the device and configuration.

    `sample_inputs` are positional arguments of the model's forward; `fusion` allows folding layers;
    a `compile_backend` of None forbids compilation. Passes for speed are measured for `measure_s`
    seconds each, at least 6 quads of calls; 0 applies them unmeasured.
    """

    device: torch.device
    hardware: Hardware
    training: bool = False
    sample_inputs: tuple[torch.Tensor, ...] = ()
    fusion: bool = True
    compile_backend: str | Callable | None = "inductor"
    compile_mode: str = "default"
    measure_s: float = 0.0
    clock: Clock = time.perf_counter

    @property
    def measures(self) -> bool:
        """Whether passes for speed can be measured."""
        return self.measure_s > 0 and bool(self.sample_inputs)


Result = tuple[nn.Module, PassResult]
Pass = Callable[[nn.Module, Setting], Result]


@dataclass(frozen=True, slots=True)
class Terms:
    """How a pass for speed is measured.

    `costly`: the pass costs something besides time, such as precision, so its speedup must be
    certain. `gradients`: calls are timed with gradients recorded. `in_place`: the pass changes the
    model itself, so it is tried on a copy.
    """

    costly: bool = False
    gradients: bool = False
    in_place: bool = True


def for_speed(**terms: bool) -> Callable[[Pass], Pass]:
    """Mark a pass as one whose only purpose is speed; `terms` are the fields of `Terms`."""

    def marked(one: Pass) -> Pass:
        one.terms = Terms(**terms)
        return one

    return marked


def difference(name: str, before: str, after: str, *, reason: str) -> PassResult:
    """Return a result that is applied if the descriptions before and after differ.

    The evidence is "before -> after"; `reason` is used if they are equal.
    """
    if after == before:
        return PassResult(name, False, reason=reason)
    return PassResult(name, True, evidence=f"{before} -> {after}")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared model with the results of the passes, in the order they were tried."""

    model: nn.Module
    level: str
    passes: tuple[PassResult, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    @property
    def applied(self) -> tuple[str, ...]:
        """Names of the passes that changed the model."""
        return tuple(result.name for result in self.passes if result.applied)

    def result(self, name: str) -> PassResult:
        """Return the result of the named pass.

        Raises:
            KeyError: no pass of that name was tried.
        """
        for result in self.passes:
            if result.name == name:
                return result
        raise KeyError(f"no pass {name!r} was tried; tried: {[r.name for r in self.passes]}")


def apply(model: nn.Module, setting: Setting, passes: Sequence[Pass], *, level: str) -> Prepared:
    """Run the passes in order, each on the model that the previous one left."""
    results = []
    for one in passes:
        terms = getattr(one, "terms", None)
        if terms is not None and setting.measures:
            model, result = _if_it_helps(one, terms, model, setting)
        else:
            model, result = _applied(one, model, setting)
        results.append(result)
    return Prepared(model, level, tuple(results))


def _applied(one: Pass, model: nn.Module, setting: Setting) -> Result:
    start = time.perf_counter()
    model, result = one(model, setting)
    return model, replace(result, seconds=time.perf_counter() - start)


def _if_it_helps(one: Pass, terms: Terms, model: nn.Module, setting: Setting) -> Result:
    """Apply the pass to a copy, measure it, and apply it to the model only if it helps."""
    before = copy.deepcopy(model) if terms.in_place else model
    trial, result = _applied(one, before, setting)
    if not result.applied:
        return model, result
    refusal, effect = None, None
    with preserve_state(model, setting):
        error = 0.0 if setting.training else _moved(trial, model, setting)
        if error > tolerance(trial):
            refusal = f"it would move the outputs by {error:.1e} (relative): not kept"
        else:
            effect = measure(trial, model, setting, gradients=terms.gradients)
    if effect is not None and not suffices(effect, costly=terms.costly):
        refusal = f"measured {effect}: not kept"
    if refusal is not None:
        seconds = result.seconds
        return model, PassResult(result.name, False, "", refusal, seconds, effect)
    if terms.in_place:
        trial, result = _applied(one, model, setting)
    return trial, replace(result, effect=effect)


def measure(
    after: nn.Module, before: nn.Module, setting: Setting, *, gradients: bool = False
) -> Ratio:
    """Return the speedup of a call on the sample inputs; in training with backward."""
    arms = [_call(model, setting, gradients) for model in (after, before)]
    timing = {"device": setting.device, "clock": setting.clock}
    for arm in arms:
        warm_up(arm, budget_s=setting.measure_s / 4, **timing)
    limits = {"quads": QUADS, "at_least": LEAST_QUADS, "budget_s": setting.measure_s}
    return compare(*arms, **limits, **timing).ratio


def _call(model: nn.Module, setting: Setting, gradients: bool) -> Callable[[], None]:
    """Return a function that runs the model: forward, and in training also backward."""

    def call() -> None:
        with torch.set_grad_enabled(setting.training or gradients):
            outputs = model(*setting.sample_inputs)
        if setting.training:
            tensors = [t for t in tree_leaves(outputs) if isinstance(t, Tensor) and t.requires_grad]
            torch.autograd.backward([t.float().sum() for t in tensors])
            model.zero_grad(set_to_none=True)

    return call


class AttentionOperators(TorchDispatchMode):
    """Record the `names` of the attention operators that are dispatched in the block."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::").split(".")[0]
        if "attention" in name:
            self.names.add(name.strip("_"))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set every module to evaluation mode in the block; restore the modes afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextlib.contextmanager
def preserve_state(model: nn.Module, setting: Setting) -> Iterator[None]:
    """Restore buffers, gradients and random number states after the block."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None
    devices = [setting.device] if setting.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        with torch.no_grad():
            for buffer, kept in buffers:
                buffer.copy_(kept)
        for parameter, gradient in gradients:
            parameter.grad = gradient


@torch.no_grad()
def _moved(after: nn.Module, before: nn.Module, setting: Setting) -> float:
    """Return the relative difference of the outputs on the sample inputs."""
    return relative_error(after(*setting.sample_inputs), before(*setting.sample_inputs))


def relative_error(actual: object, expected: object) -> float:
    """Return the largest relative error of all output tensors; infinite for NaN."""
    pairs = zip(tree_leaves(actual), tree_leaves(expected), strict=True)
    errors = (numbers.relative_error(a, e) for a, e in pairs if isinstance(e, Tensor))
    return max(errors, default=0.0)


def tolerance(model: nn.Module) -> float:
    """Return the tolerated relative error of outputs, by the model's least precise dtype.

    1e-4 for a model without floating-point tensors.
    """
    tensors = [*model.parameters(), *model.buffers()]
    dtypes = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    return max((TOLERANCE.get(dtype, FP8_TOLERANCE) for dtype in dtypes), default=1e-4)
