"""The passes that all backends share, and the optimization levels.

Each pass changes the model itself, as `nn.Module.to` does. Levels for inference: conservative
(device and mode; outputs bit for bit equal), balanced (adds folded batch norms, layout and fused
attention; equal within float32 rounding) and aggressive (adds native bfloat16 and compilation;
equal within bfloat16 rounding). Levels for training keep precision and structure: device and mode,
then layout, then compilation. Passes for speed can be measured and are then kept only if they help;
see `torchbridge.passes`.
"""

from __future__ import annotations

import copy
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils._pytree import tree_map_only

from torchbridge.passes import (
    TOLERANCE,
    AttentionOperators,
    Pass,
    PassResult,
    Result,
    Setting,
    difference,
    evaluating,
    for_speed,
    preserve_state,
    relative_error,
    tolerance,
)

LEVELS = ("conservative", "balanced", "aggressive")
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def to_device(model: nn.Module, setting: Setting) -> Result:
    """Move parameters and buffers to the device."""
    before = _places(model)
    model = model.to(setting.device)
    reason = f"already on {setting.device}"
    return model, difference("to_device", before, _places(model), reason=reason)


def set_mode(model: nn.Module, setting: Setting) -> Result:
    """Set every module to training or evaluation mode."""
    before = _modes(model)
    model.train(setting.training)
    reason = f"already {'training' if setting.training else 'evaluating'}"
    return model, difference("set_mode", before, _modes(model), reason=reason)


@for_speed()
def fold_conv_bn(model: nn.Module, setting: Setting) -> Result:
    """Fold each batch norm that follows exactly one convolution into its weights."""
    name = "fold_conv_bn"
    if setting.training or not setting.fusion:
        why = "training needs the batch's own statistics" if setting.training else "fusion is off"
        return model, PassResult(name, False, reason=why)
    before = _norms(model)
    try:
        with preserve_state(model, setting):  # tracing runs code outside of modules
            pairs = list(_pairs(model))
    except Exception as error:  # fx raises many types of errors
        reason = f"the model cannot be traced: {_brief(error)}"
        return model, PassResult(name, False, reason=reason)
    for convolution, norm in pairs:
        fused = fuse_conv_bn_eval(model.get_submodule(convolution), model.get_submodule(norm))
        _replace(model, convolution, fused)
        _replace(model, norm, nn.Identity())
    return model, difference(name, before, _norms(model), reason="no batch norm to fold")


@for_speed()
def channels_last(model: nn.Module, setting: Setting) -> Result:
    """Store the weights of 2-D convolutions in channels_last format."""
    if not any(isinstance(module, nn.Conv2d) for module in model.modules()):
        return model, PassResult("channels_last", False, reason="no 2-D convolution")
    before = _layouts(model)
    model = model.to(memory_format=torch.channels_last)
    reason = "the weights were channels-last already"
    return model, difference("channels_last", before, _layouts(model), reason=reason)


@for_speed(costly=True)
def bfloat16(model: nn.Module, setting: Setting) -> Result:
    """Convert float32 parameters to bfloat16 if it is native or measured to be faster.

    Inputs are cast to bfloat16 and outputs back to float32.
    """
    if not (setting.hardware.has("bf16") or setting.measures):
        reason = f"{_title(setting)} has no native bf16"
        return model, PassResult("bfloat16", False, reason=reason)
    return _narrowed(model, torch.bfloat16)


@for_speed(costly=True)
def float16(model: nn.Module, setting: Setting) -> Result:
    """Convert float32 parameters to float16, for hardware without bfloat16.

    A copy is first tried on the sample inputs, since float16 ends at 65504; without them nothing is
    changed.
    """
    refusal = None
    if not setting.hardware.has("fp16"):
        refusal = f"{_title(setting)} has no native fp16"
    elif not setting.sample_inputs:
        refusal = "no sample inputs to see whether float16's range is enough"
    else:
        error = _float16_error(model, setting)
        if error > TOLERANCE[torch.float16]:
            refusal = f"it would move the outputs by {error:.1e} (relative)"
    if refusal is not None:
        return model, PassResult("float16", False, reason=refusal)
    return _narrowed(model, torch.float16)


@for_speed(gradients=True)
def sdpa(model: nn.Module, setting: Setting) -> Result:
    """Freeze the parameters of nn.MultiheadAttention, so that its fused path is used.

    Parameters that require gradients keep torch from using it when gradients are enabled.
    """
    modules = [m for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    if not modules:
        return model, PassResult("sdpa", False, reason="no torch.nn.MultiheadAttention")
    before = _attention_operators(modules)
    for module in modules:
        module.requires_grad_(False)
    after = _attention_operators(modules)
    return model, difference("sdpa", before, after, reason=f"as before: {before}")


@for_speed(costly=True, in_place=False)
def compile_model(model: nn.Module, setting: Setting) -> Result:
    """Compile by torch.compile and compare with eager mode on the sample inputs.

    The comparison runs in evaluation mode and restores the buffers.
    """
    if setting.compile_backend is None or not setting.sample_inputs:
        why = "no sample inputs to compile with" if setting.compile_backend else "turned off"
        return model, PassResult("compile", False, reason=why)
    compiled = _compiled(model, setting)
    with preserve_state(model, setting), evaluating(model), torch.no_grad():
        expected = model(*setting.sample_inputs)
        graphs, start = _graphs(), time.perf_counter()
        try:
            actual = compiled(*setting.sample_inputs)
        except Exception as error:  # no C++ compiler, an operator that cannot be lowered ...
            reason = f"{setting.compile_backend} cannot: {_brief(error)}"
            return model, PassResult("compile", False, reason=reason)
        seconds, graphs = time.perf_counter() - start, _graphs() - graphs
        if graphs < 1 and not _runs_compiled(lambda: compiled(*setting.sample_inputs)):
            return model, PassResult("compile", False, reason="torch.compile compiled no graph")
    error = relative_error(actual, expected)
    if error > tolerance(model):
        reason = f"compiled outputs are {error:.1e} (relative) away from eager"
        return model, PassResult("compile", False, reason=reason)
    evidence = (
        f"{graphs or 'kept'} graph(s) by {setting.compile_backend} in {seconds:.1f} s, "
        f"relative error {error:.1e} against eager"
    )
    return compiled, PassResult("compile", True, evidence=evidence)


_INFERENCE: tuple[tuple[Pass, ...], ...] = (
    (to_device, set_mode),
    (fold_conv_bn, channels_last, sdpa),
    (bfloat16, compile_model),
)
_TRAINING: tuple[tuple[Pass, ...], ...] = (
    (to_device, set_mode),
    (channels_last,),
    (compile_model,),
)


def passes_of(level: str, *, training: bool) -> tuple[Pass, ...]:
    """Return the passes of a level in order, those of lower levels first.

    Raises:
        ValueError: the level is unknown.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, got {level!r}")
    steps = (_TRAINING if training else _INFERENCE)[: LEVELS.index(level) + 1]
    return tuple(one for step in steps for one in step)


# Observations of a model. Evidence comes only from these functions.


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _tally(words: Iterator[str]) -> str:
    counts = sorted(Counter(words).items())
    return ", ".join(f"{count} {word}" for word, count in counts) or "nothing"


def _places(model: nn.Module) -> str:
    return _tally(f"tensor(s) on {tensor.device}" for tensor in _tensors(model))


def _modes(model: nn.Module) -> str:
    return _tally(
        f"module(s) {'training' if m.training else 'evaluating'}" for m in model.modules()
    )


def _norms(model: nn.Module) -> str:
    return f"{sum(isinstance(m, NORMS) for m in model.modules())} batch norm(s)"


def _layouts(model: nn.Module) -> str:
    weights = [m.weight for m in model.modules() if isinstance(m, nn.Conv2d)]
    innermost = sum(w.stride(1) == 1 and w.stride(3) == w.shape[1] for w in weights)
    return f"{innermost} of {len(weights)} weight(s) channels-last"


def _dtypes(model: nn.Module) -> str:
    return _tally(str(p.dtype).removeprefix("torch.") for p in model.parameters())


def _attention_operators(modules: list[nn.MultiheadAttention]) -> str:
    """Return the attention operator of each module, observed on two tokens."""
    return _tally(f"module(s) by {_attention_operator(module)}" for module in modules)


def _attention_operator(module: nn.MultiheadAttention) -> str:
    weight = module.out_proj.weight
    widths = module.embed_dim, module.kdim, module.vdim
    inputs = [weight.new_zeros(2, 2, width) for width in widths]
    if len(set(widths)) == 1:
        inputs = inputs[:1] * 3  # self-attention: the fused path wants the very same tensor
    with torch.enable_grad(), AttentionOperators() as operators:
        module(*inputs)
    return " and ".join(sorted(operators.names)) or "explicit softmax"


def _compiled(model: nn.Module, setting: Setting) -> nn.Module:
    if setting.compile_mode == "default":
        return torch.compile(model, backend=setting.compile_backend)
    return torch.compile(model, backend=setting.compile_backend, mode=setting.compile_mode)


def _graphs() -> int:
    """Return the number of graphs that torch has compiled in this process."""
    from torch._dynamo.utils import counters  # a second to import

    return counters["stats"]["unique_graphs"]


def _runs_compiled(call: Callable[[], object]) -> bool:
    """Return whether a call runs a graph that was compiled for an earlier model of this form."""
    with torch.autograd.profiler.profile() as profile:
        call()
    return any(event.name.startswith("Torch-Compiled Region") for event in profile.function_events)


# Implementation of the passes.


def _pairs(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield the names of each convolution and of the norm that may be folded into it."""
    graph = fx.Tracer().trace(model)
    calls = Counter(node.target for node in graph.nodes if node.op == "call_module")
    modules = dict(model.named_modules())
    for node in graph.nodes:
        if node.op != "call_module" or type(modules[node.target]) not in NORMS:
            continue
        source = node.args[0]
        if source.op != "call_module" or type(modules[source.target]) not in CONVOLUTIONS:
            continue
        alone = len(source.users) == calls[node.target] == calls[source.target] == 1
        norm = modules[node.target]
        if alone and not norm.training and norm.running_mean is not None:
            yield source.target, node.target


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


def _narrowed(model: nn.Module, dtype: torch.dtype) -> Result:
    """Convert float32 parameters and buffers to `dtype`, and cast inputs and outputs in hooks."""
    name = str(dtype).removeprefix("torch.")
    if any(p.dtype != torch.float32 for p in model.parameters()):
        return model, PassResult(name, False, reason=f"not a float32 model: {_dtypes(model)}")
    before = _dtypes(model)
    model = model.to(dtype)
    if _dtypes(model) != before:
        model.register_forward_pre_hook(functools.partial(_cast_inputs, dtype), with_kwargs=True)
        model.register_forward_hook(functools.partial(_cast_output, dtype))
    return model, difference(name, before, _dtypes(model), reason="no parameters")


def _cast_inputs(dtype: torch.dtype, _: nn.Module, *inputs: Any) -> Any:
    return _cast(inputs, torch.float32, dtype)


def _cast_output(dtype: torch.dtype, _: nn.Module, __: tuple, output: Any) -> Any:
    return _cast(output, dtype, torch.float32)


def _cast(data: Any, old: torch.dtype, new: torch.dtype) -> Any:
    """Convert the tensors of dtype `old` in nested data to `new`."""
    return tree_map_only(Tensor, lambda t: t.to(new) if t.dtype == old else t, data)


@torch.no_grad()
def _float16_error(model: nn.Module, setting: Setting) -> float:
    """Return the relative error of a float16 copy of the model on the sample inputs."""
    with evaluating(model):
        expected = model(*setting.sample_inputs)
        trial, _ = _narrowed(copy.deepcopy(model), torch.float16)
        return relative_error(trial(*setting.sample_inputs), expected)


def _title(setting: Setting) -> str:
    return f"{setting.hardware.vendor} {setting.hardware.target}".strip()


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
