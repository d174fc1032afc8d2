"""Check a model without changing it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from torchbridge.config.enums import ValidationLevel
from torchbridge.hardware import Hardware
from torchbridge.memory import model_bytes
from torchbridge.numbers import TOLERANCE, float_tensors, relative_error
from torchbridge.passes import evaluating
from torchbridge.peaks import peak_flops
from torchbridge.timing import Spread, timed, warm_up
from torchbridge.validation.findings import Finding, failed, passed, warned

LOUD = 1e3  # times the sample inputs, to see what overflows
ITERATIONS = 10
LEAST_SHARE = 0.5  # of the loop's wall time that single latencies must explain
# what a product of such tensors may be computed in
NUMBERS = {
    torch.float32: ("tf32", "fp32"),
    torch.bfloat16: ("bf16",),
    torch.float16: ("fp16",),
}


@dataclass(frozen=True, slots=True)
class Subject:
    """A model with positional inputs of its forward, both on one device."""

    model: nn.Module
    inputs: tuple[Tensor, ...]
    device: torch.device
    hardware: Hardware

    def trained(self) -> list[tuple[str, nn.Parameter]]:
        """Return the parameters that require gradients, with their names."""
        return [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]

    def outputs(self, model: nn.Module | None = None, scale: float = 1.0) -> list[Tensor]:
        """Return the outputs of the model (or another) in evaluation mode, for scaled inputs."""
        model = self.model if model is None else model
        inputs = [x * scale if x.is_floating_point() else x for x in self.inputs]
        with evaluating(model), torch.no_grad():
            return float_tensors(model(*inputs))


def parameters_exist(subject: Subject) -> Finding:
    """Check that the model has parameters."""
    count = sum(1 for _ in subject.model.parameters())
    if count == 0:
        return failed("the model has no parameters", "register its weights as nn.Parameter")
    return passed(f"{count} parameter tensors", tensors=count)


def no_nan_parameters(subject: Subject) -> Finding:
    """Check that all parameters and buffers are finite."""
    named = [*subject.model.named_parameters(), *subject.model.named_buffers()]
    floats = [(name, x.detach()) for name, x in named if x.is_floating_point()]
    wide = ((name, x.float() if x.element_size() == 1 else x) for name, x in floats)
    bad = {name: int((~torch.isfinite(x)).sum()) for name, x in wide if not x.isfinite().all()}
    if bad:
        worst = ", ".join(f"{name} ({count})" for name, count in bad.items())
        advice = "load the weights again, or lower the learning rate"
        return failed(f"numbers that are not finite: {worst}", advice, not_finite=bad)
    return passed(f"{len(floats)} tensors are finite", tensors=len(floats))


def parameter_counts(subject: Subject) -> Finding:
    """Count the parameters, and check that weights can be trained."""
    sizes = {True: 0, False: 0}
    for parameter in subject.model.parameters():  # shared ones come once
        sizes[parameter.requires_grad] += parameter.numel()
    counts = {"trainable": sizes[True], "frozen": sizes[False], "bytes": model_bytes(subject.model)}
    if not sizes[True]:
        return failed("nothing can be trained", "set requires_grad on the parameters", **counts)
    dead = [name for name, module in subject.model.named_modules() if _only_bias(module)]
    if dead:
        message = f"weights are buffers, only the biases would be trained: {', '.join(dead)}"
        return warned(message, "use such layers for inference only", **counts, layers=dead)
    return passed(f"{sizes[True]:,} trainable, {sizes[False]:,} frozen", **counts)


def _only_bias(module: nn.Module) -> bool:
    """Return whether a layer's bias is trained while its weight is a buffer."""
    own = dict(module.named_buffers(recurse=False))
    bias = dict(module.named_parameters(recurse=False)).get("bias")
    weights = [x for name, x in own.items() if "weight" in name and x.is_floating_point()]
    return bool(weights) and bias is not None and bias.requires_grad


def forward_finite(subject: Subject) -> Finding:
    """Check that the outputs are finite and the same in two calls."""
    first, second = subject.outputs(), subject.outputs()
    bad = sum(int((~torch.isfinite(x)).sum()) for x in first)
    if bad:
        advice = "look for overflow in 16 bit, division by zero, or rows that are masked entirely"
        return failed(f"{bad} numbers of the output are not finite", advice, not_finite=bad)
    error = max(relative_error(a, b) for a, b in zip(first, second, strict=True))
    if error > TOLERANCE[_coarsest(first)]:
        advice = "something random is left in evaluation"
        return failed(f"two calls differ by {error:.1e} (relative)", advice, difference=error)
    shapes = [list(x.shape) for x in first]
    return passed(f"finite, shapes {shapes}", shapes=shapes, difference=error)


def gradient_flow(subject: Subject) -> Finding:
    """Check that every trainable parameter gets a finite gradient."""
    names = [name for name, _ in subject.trained()]
    if not names:
        return failed("nothing can be trained", "set requires_grad on the parameters")
    gradients = _gradients(subject)
    lost = [name for name, gradient in zip(names, gradients, strict=True) if gradient is None]
    if lost:
        advice = "look for detach, no_grad, item() or integers between them and the output"
        return failed(f"no gradient reaches {', '.join(lost)}", advice, lost=lost)
    norms = [gradient.double().norm().item() for gradient in gradients]
    total = sum(norm**2 for norm in norms) ** 0.5
    details = {"norm": total, "tensors": len(norms)}
    if not 0 < total < float("inf"):
        return failed(f"the gradient's norm is {total}", "look at the activations", **details)
    still = [name for name, norm in zip(names, norms, strict=True) if norm == 0]
    if still:
        message = f"the gradient is exactly 0 in {', '.join(still)}"
        return warned(message, "check that they are used", **details, still=still)
    return passed(f"gradient norm {total:.3g} over {len(norms)} tensors", **details)


def _gradients(subject: Subject) -> tuple[Tensor | None, ...]:
    """Return the gradients of random sums of the outputs, computed on a copy in training mode."""
    model = copy.deepcopy(subject.model).train()
    devices = [subject.device] if subject.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.enable_grad():
        torch.manual_seed(0)
        outputs = float_tensors(model(*subject.inputs))
        loss = sum((x * torch.randn_like(x)).sum() for x in outputs)
        wanted = [p for p in model.parameters() if p.requires_grad]
        if not loss.requires_grad:
            return (None,) * len(wanted)
        return torch.autograd.grad(loss, wanted, allow_unused=True)


def memory_usage(subject: Subject) -> Finding:
    """Check that weights, gradients and saved activations fit the device."""
    kept: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    model = copy.deepcopy(subject.model).train()
    own = {x.untyped_storage().data_ptr() for x in (*model.parameters(), *subject.inputs)}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x), torch.enable_grad():
        alive = model(*subject.inputs)
    activations = sum(size for pointer, size in kept.items() if pointer not in own)
    del alive
    gradients = sum(p.numel() * p.element_size() for _, p in subject.trained())
    sizes = {
        "weights": model_bytes(subject.model),
        "gradients": gradients,
        "activations": activations,
    }
    total, there = sum(sizes.values()), subject.hardware.memory_bytes
    message = f"{total / 2**20:.1f} MiB to train"
    if not there:
        return passed(f"{message}; the device's size is unknown", **sizes)
    message = f"{message}, {total / there:.2%} of the device"
    if total > there:
        return failed(message, "use a smaller batch, or checkpointing", **sizes)
    if total > 0.9 * there:
        return warned(message, "leave room for the optimizer and the cache", **sizes)
    return passed(message, **sizes)


def numerical_stability(subject: Subject) -> Finding:
    """Compare the outputs with float64 on the CPU, and check that inputs x 1000 do not overflow."""
    wide = copy.deepcopy(subject.model).cpu().double()
    inputs = tuple(x.cpu().double() if x.is_floating_point() else x.cpu() for x in subject.inputs)
    cpu = torch.device("cpu")
    expected = Subject(wide, inputs, cpu, subject.hardware).outputs()
    actual = subject.outputs()
    error = max(relative_error(a, e) for a, e in zip(actual, expected, strict=True))
    limit = TOLERANCE[_coarsest(actual)]
    details = {"error": error, "tolerance": limit}
    if error > limit:
        message = f"relative error {error:.1e} against float64, tolerance {limit:.0e}"
        return failed(message, "keep sums and norms in float32", **details)
    if not all(x.isfinite().all() for x in subject.outputs(scale=LOUD)):
        message = f"inputs {LOUD:.0f} times as large overflow"
        return warned(message, "normalise the inputs, or use bfloat16", **details)
    return passed(f"relative error {error:.1e} against float64 (<= {limit:.0e})", **details)


def _coarsest(tensors: Sequence[Tensor]) -> torch.dtype:
    return max((x.dtype for x in tensors), key=lambda dtype: TOLERANCE[dtype])


def performance(subject: Subject) -> Finding:
    """Measure a forward pass, and check that its timing is plausible."""
    counter = FlopCounterMode(display=False)
    with counter:  # of what was compiled, the operations cannot be seen
        outputs = subject.outputs(getattr(subject.model, "_orig_mod", None))
    warm_up(subject.outputs, subject.device, budget_s=1.0)
    samples: list[float] = []
    wall = timed(lambda: samples.extend(_timings(subject)), subject.device)
    spread = Spread.from_samples(samples)
    achieved = counter.get_total_flops() / spread.median
    details = {"samples_s": samples, "flops_per_s": achieved, "share": sum(samples) / wall}
    if details["share"] < LEAST_SHARE:
        return failed("single calls do not explain the loop's time", "wait for them", **details)
    peaks = [peak_flops(subject.hardware, number) for number in NUMBERS.get(outputs[0].dtype, ())]
    peak = max((peak for peak in peaks if peak), default=None)
    if peak is not None and achieved > peak:
        message = f"{achieved:.2e} FLOP/s is over the device's peak of {peak:.2e}"
        return failed(message, "this was not waited for, or not computed", **details, peak=peak)
    speed = f"{achieved / 1e9:.2f} GFLOP/s" if achieved else "its operations are not counted"
    return passed(f"{1e3 * spread.median:.3f} ms, {speed}", **details)


def _timings(subject: Subject) -> list[float]:
    return [timed(subject.outputs, subject.device) for _ in range(ITERATIONS)]


ModelCheck = Callable[[Subject], Finding]
ADDED: dict[ValidationLevel, tuple[ModelCheck, ...]] = {
    ValidationLevel.MINIMAL: (parameters_exist, no_nan_parameters, parameter_counts),
    ValidationLevel.STANDARD: (forward_finite, gradient_flow),
    ValidationLevel.STRICT: (memory_usage, numerical_stability),
    ValidationLevel.COMPREHENSIVE: (performance,),
}


def checks_of(level: ValidationLevel) -> tuple[ModelCheck, ...]:
    """Return the checks of a level and of all lower levels: 3, 5, 7 or 8."""
    levels = list(ADDED)
    upto = levels[: levels.index(level) + 1]
    return tuple(check for one in upto for check in ADDED[one])
