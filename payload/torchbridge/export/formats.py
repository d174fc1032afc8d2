"""The export formats, newest first; each exporter verifies the re-loaded file (publish.py).

Options of all exporters: `dynamic` and `checks` as in `Plan.from_inputs`, `tolerance` (by default
that of the output's dtype), and `metadata` (by default read from the model).
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import torch
from torch import Tensor, nn

from torchbridge.export.inputs import Plan
from torchbridge.export.metadata import KEY, OptimizationMetadata
from torchbridge.export.publish import (
    ExportMismatch,
    ExportResult,
    ExportUnavailable,
    LoadedFile,
    Verification,
    publish,
    require,
)

if TYPE_CHECKING:
    from torch.export import ExportedProgram

ALIASES = "aliases"  # SafeTensors: the names of tensors that are stored under another one
ONNX_LIMIT_BYTES = 2**31 - 2**20  # of one protobuf file, less its graph
ADVICE = {  # where the re-loaded file differs from the model
    "torch_export": "Something in forward depends on the example; declare axes that cannot be that"
    " short or long with Dim(min=, max=), and keep Python numbers out of forward.",
    "onnx": "Declare every axis that moves by dynamic=, and keep Python numbers out of forward.",
    "torchscript": "A trace keeps the branches and Python numbers of its example: use"
    ' method="script", or export_to_torch_export.',
    "safetensors": "Some hook changes the weights on their way out of the model or into it: remove"
    " it.",
}
SUFFIXES = {"torch_export": ".pt2", "onnx": ".onnx"}
Inputs = Union[Tensor, Sequence[Tensor]]  # noqa: UP007  evaluated by Python 3.10 too


def _facts(texts: Mapping[str, str]) -> OptimizationMetadata | None:
    """Return the metadata stored in a file's texts; None if another program wrote the file."""
    return OptimizationMetadata.from_json(texts[KEY]) if texts.get(KEY) else None


def _publish(
    name: str,
    model: nn.Module,
    path: str | Path,
    inputs: Inputs,
    options: dict[str, Any],
    *,
    write: Callable[[Plan, Path, str], None],
    load: Callable[[Path], LoadedFile],
) -> ExportResult:
    """Call `publish` with a plan made from the options `dynamic` and `checks`."""
    suffix = SUFFIXES.get(name)
    if suffix and Path(path).suffix != suffix:
        raise ValueError(f"{name}: the path must end in {suffix!r}, got {str(path)!r}")
    plan = Plan.from_inputs(inputs, options.pop("dynamic", None), options.pop("checks", None))

    def draft_of(draft: Path, facts: str) -> None:
        write(plan, draft, facts)

    advice = ADVICE[name]
    return publish(name, path, model, plan, write=draft_of, load=load, advice=advice, **options)


def export_to_torch_export(
    model: nn.Module, path: str | Path, sample_inputs: Inputs, **options: Any
) -> ExportResult:
    """Export by torch.export: a graph of ATen operations with weights, in one `.pt2` file.

    Raises:
        ExportMismatch: the re-loaded file disagrees with the model.
        ValueError: the path does not end in `.pt2`, or axes or checks do not fit.
    """

    def write(plan: Plan, draft: Path, facts: str) -> None:
        torch.export.save(trace(model, plan), draft, extra_files={KEY: facts})

    how = {"write": write, "load": load_torch_export}
    return _publish("torch_export", model, path, sample_inputs, options, **how)


def trace(model: nn.Module, plan: Plan) -> ExportedProgram:
    """Return the model's graph for all sizes of the dynamic axes.

    Raises:
        torch._dynamo.exc.UserError: the model fixes an axis that was declared dynamic.
    """
    return torch.export.export(model, plan.example, dynamic_shapes=plan.shapes, strict=False)


def load_torch_export(path: str | Path) -> LoadedFile:
    """Load a program; it runs on the device it was exported on."""
    extra = {KEY: ""}
    program = torch.export.load(Path(path), extra_files=extra)
    return LoadedFile("torch_export", program.module(), _facts(extra))


def export_to_onnx(
    model: nn.Module, path: str | Path, sample_inputs: Inputs, **options: Any
) -> ExportResult:
    """Export to ONNX by torch's dynamo exporter, verified by ONNX Runtime on the CPU.

    A CPU copy of the model is exported and compared, because ONNX files have no device.

    Raises:
        ExportUnavailable: a package is missing, or the model is bfloat16 or over 2 GiB.
        ExportMismatch: ONNX Runtime disagrees with the model.
        ValueError: the path does not end in `.onnx`, or axes or checks do not fit.
    """
    require("onnx", "onnx", "onnxscript", "onnxruntime")
    _refuse_for_onnx(model)
    options["checks"] = options.get("checks") and [_on_cpu(one) for one in options["checks"]]
    model = copy.deepcopy(model).cpu()

    def write(plan: Plan, draft: Path, facts: str) -> None:
        import onnx

        texts = {"dynamo": True, "dynamic_shapes": plan.shapes, "verbose": False}
        with _quietly():
            program = torch.onnx.export(model, plan.example, **texts)
            program.save(str(draft), external_data=False)
        proto = onnx.load(draft)
        for node in proto.graph.node:
            del node.metadata_props[:]  # stack traces: they name the files of this machine
        onnx.helper.set_model_props(proto, {KEY: facts})
        onnx.checker.check_model(proto)
        onnx.save(proto, draft)

    how = {"write": write, "load": load_onnx}
    return _publish("onnx", model, path, _on_cpu(sample_inputs), options, **how)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Suppress the ONNX exporter's log and warnings in the block; the file is verified later."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _refuse_for_onnx(model: nn.Module) -> None:
    tensors = [*model.parameters(), *model.buffers()]
    if any(one.dtype == torch.bfloat16 for one in tensors):
        missing = "ONNX Runtime has no bfloat16 on the CPU to verify with"
        raise ExportUnavailable("onnx", missing, "cast the model to float32 or float16 first")
    size = sum(one.numel() * one.element_size() for one in tensors)
    if size > ONNX_LIMIT_BYTES:
        missing = f"{size / 2**30:.1f} GiB of weights do not fit the 2 GiB of one file"
        raise ExportUnavailable("onnx", missing, "use export_to_torch_export")


def _on_cpu(inputs: Inputs) -> tuple[Tensor, ...]:
    inputs = (inputs,) if isinstance(inputs, Tensor) else inputs
    return tuple(tensor.cpu() for tensor in inputs)


def load_onnx(path: str | Path) -> LoadedFile:
    """Load an ONNX Runtime session on the CPU, called with tensors and returning tensors."""
    require("onnx", "onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(*inputs: Tensor) -> Any:
        arrays = [tensor.detach().cpu().contiguous().numpy() for tensor in inputs]
        outputs = session.run(None, dict(zip(names, arrays, strict=True)))
        tensors = tuple(torch.from_numpy(array) for array in outputs)
        return tensors[0] if len(tensors) == 1 else tensors

    return LoadedFile("onnx", run, _facts(session.get_modelmeta().custom_metadata_map))


def export_to_safetensors(
    model: nn.Module, path: str | Path, sample_inputs: Inputs, **options: Any
) -> ExportResult:
    """Export the state_dict without code to SafeTensors; shared tensors are stored once.

    Verified on a copy with erased weights: every tensor must be restored bit for bit, and the
    outputs must agree with the model's.

    Raises:
        ExportUnavailable: the package is missing, or the state_dict holds more than tensors.
        ExportMismatch: the re-loaded file disagrees with the model.
        ValueError: axes or checks do not fit.
    """
    require("safetensors", "safetensors")
    tensors, aliases = stored_tensors(model)

    def write(plan: Plan, draft: Path, facts: str) -> None:
        from safetensors.torch import save_file

        save_file(tensors, draft, {KEY: facts, ALIASES: json.dumps(aliases)})

    def load(draft: Path) -> LoadedFile:
        copied = _wiped(model)
        exported = load_safetensors(draft, copied)
        _same_bits(copied.state_dict(), model.state_dict())
        return exported

    return _publish("safetensors", model, path, sample_inputs, options, write=write, load=load)


def stored_tensors(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors to store by name, and aliases of tensors that have several names.

    Raises:
        ExportUnavailable: an entry of the state_dict is not a tensor.
    """
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[tuple, str] = {}
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, Tensor):
            missing = f"{name!r} in the state_dict is a {type(tensor).__name__}, not a tensor"
            raise ExportUnavailable(
                "safetensors", missing, "use torch.save, or export_to_torch_export"
            )
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        if tensor.numel() and place in first:
            aliases[name] = first[place]
            continue
        first[place] = name
        alone = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
        tensors[name] = tensor if alone else tensor.clone(memory_format=torch.contiguous_format)
    return tensors, aliases


def load_safetensors(path: str | Path, model: nn.Module) -> LoadedFile:
    """Load the tensors of a file into `model`, which must have the same names, shapes and dtypes.

    Raises:
        ExportUnavailable: the package is missing.
        ValueError: names, shapes or dtypes differ.
    """
    require("safetensors", "safetensors")
    from safetensors import safe_open

    with safe_open(str(path), framework="pt") as file:
        texts = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for alias, name in json.loads(texts.get(ALIASES, "{}")).items():
        tensors[alias] = tensors[name]
    _refuse_other(tensors, model.state_dict(), path)
    model.load_state_dict(tensors)
    return LoadedFile("safetensors", model, _facts(texts))


def _refuse_other(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path) -> None:
    odd = sorted(set(found) ^ set(wanted))
    for name in set(found) & set(wanted):
        here, there = wanted[name], found[name]
        if (here.shape, here.dtype) != (there.shape, there.dtype):
            odd.append(f"{name} {there.dtype}{list(there.shape)}")
    if odd:
        raise ValueError(f"{path} does not fit the model: {', '.join(odd[:5])} ({len(odd)} in all)")


def _same_bits(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    other = [
        Verification((tuple(one.shape),), math.inf, 0.0, f"{name} came back with other bits")
        for name, one in wanted.items()
        if not torch.equal(_bits(one), _bits(found[name]))
    ]
    if other:
        raise ExportMismatch("safetensors", other, "Nothing may be cast on the way.")


def _bits(tensor: Tensor) -> Tensor:
    return tensor.cpu().contiguous().flatten().view(torch.uint8)


def _wiped(model: nn.Module) -> nn.Module:
    """Return a copy in eval mode with erased weights: NaN, or 0 for integers."""
    wiped = copy.deepcopy(model).eval()
    with torch.no_grad():
        for tensor in wiped.state_dict().values():
            tensor.fill_(float("nan") if tensor.is_floating_point() else 0)
    return wiped


def export_to_torchscript(
    model: nn.Module,
    path: str | Path,
    sample_inputs: Inputs,
    *,
    method: str = "trace",
    freeze: bool = False,
    **options: Any,
) -> ExportResult:
    """Export to TorchScript by "trace" or "script"; torch has deprecated this format.

    `freeze` turns the weights into constants, so the file has no parameters.

    Raises:
        ExportMismatch: the re-loaded file disagrees with the model.
        ValueError: the method is unknown, or axes or checks do not fit.
    """
    if method not in ("trace", "script"):
        raise ValueError(f'torchscript: method must be "trace" or "script", got {method!r}')

    def write(plan: Plan, draft: Path, facts: str) -> None:
        with _undeprecated():
            # no gradients while tracing (publish sees to it): with them, layers that have a fast
            # path for inference take another way when torch checks the trace
            if method == "trace":
                script = torch.jit.trace(model, plan.example, strict=False)  # dictionaries as well
            else:
                script = torch.jit.script(model)
            script = torch.jit.freeze(script) if freeze else script
            torch.jit.save(script, str(draft), _extra_files={KEY: facts})

    how = {"write": write, "load": load_torchscript}
    return _publish("torchscript", model, path, sample_inputs, options, **how)


def load_torchscript(path: str | Path) -> LoadedFile:
    """Load a script; it runs on the device it was exported on."""
    extra = {KEY: ""}
    with _undeprecated():
        script = torch.jit.load(str(path), _extra_files=extra)
    return LoadedFile("torchscript", script, _facts(extra))


@contextlib.contextmanager
def _undeprecated() -> Iterator[None]:
    """Suppress torch's deprecation warning for TorchScript in the block."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        yield


EXPORTERS = {
    "torch_export": export_to_torch_export,
    "onnx": export_to_onnx,
    "safetensors": export_to_safetensors,
    "torchscript": export_to_torchscript,
}
