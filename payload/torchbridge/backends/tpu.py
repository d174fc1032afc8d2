"""Google's TPUs, by torch_xla. Without one `TPUBackend` says so and works on the CPU."""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from torchbridge import memory
from torchbridge.backends.backend import Backend, OptimizationResult, Optimizer
from torchbridge.backends.errors import (
    CheckpointError,
    CompilationError,
    ConfigurationError,
    DataError,
    DistributedError,
    NotAvailable,
    OptimizationError,
)
from torchbridge.backends.memory import Layout, TPUMemoryManager, tiled
from torchbridge.backends.optimise import (
    LEVELS,
    bfloat16,
    fold_conv_bn,
    passes_of,
    set_mode,
    to_device,
)
from torchbridge.backends.xla import (
    XLA,
    Compilation,
    CompiledModel,
    CompilerStats,
    MemoryInfo,
    TrainingStep,
    XLACompiler,
    load,
)
from torchbridge.config import Config, TPUConfig, TPUTopology, TPUVersion, detect_tpu_version
from torchbridge.config.vendors import MEMORY_GB
from torchbridge.hardware import Hardware
from torchbridge.passes import Pass, PassResult, Prepared, Setting

__all__ = [
    "XLA",
    "Compilation",
    "CompiledModel",
    "CompilerStats",
    "Findings",
    "Layout",
    "MemoryInfo",
    "TPUBackend",
    "TPUMemoryManager",
    "TPUOptimizer",
    "TrainingStep",
    "XLACompiler",
    "XLADeviceManager",
    "XLADistributedTraining",
    "XLAOptimizations",
    "XLAUtilities",
    "create_xla_integration",
    "tiled",
    "validate_config",
    "validate_model",
]

_WASTE = 0.5  # a weight that fills less than half of its tiles is worth a warning
_IMPOSSIBLE = (torch.complex128, torch.qint8, torch.quint8)


@dataclass(frozen=True, slots=True)
class Findings:
    """`errors` keep the model or the settings off the TPU, `warnings` make it slow."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """No errors."""
        return not self.errors


def validate_config(config: TPUConfig, xla: XLA) -> Findings:
    """Do the settings fit the chip? With `strict_validation` warnings are errors.

    Raises:
        ConfigurationError: `strict_validation`, and something was found.
    """
    findings = Findings(tuple(_misfits(config, xla)), tuple(_slow_settings(config)))
    return _strictly(findings, config, ConfigurationError)


def _misfits(config: TPUConfig, xla: XLA) -> Iterator[str]:
    try:
        found = detect_tpu_version(xla.accelerator)
    except ValueError:
        found = TPUVersion.AUTO
    told = config.version is not TPUVersion.AUTO and found is not TPUVersion.AUTO
    if told and config.version is not found:
        yield f"version is {config.version.value}, the chip is {found.value}"
    here = config.version if found is TPUVersion.AUTO else found
    most = MEMORY_GB.get(here.value)
    if config.memory_gb and most and config.memory_gb > most:
        yield f"memory_gb is {config.memory_gb:g}, a {here.value} chip has {most}"
    if config.topology is TPUTopology.SINGLE and xla.world_size > 8:
        yield f"topology is single, the job has {xla.world_size} devices"


def _slow_settings(config: TPUConfig) -> Iterator[str]:
    if config.dynamic_shapes:
        yield "dynamic_shapes: XLA compiles again for every shape"
    if config.precision == "float32" and config.xla_optimization_level == 0:
        yield "float32 at level 0: every product takes six passes of bfloat16"


def validate_model(model: nn.Module, config: TPUConfig) -> Findings:
    """Can its weights be stored and multiplied well? With `strict_validation` warnings are errors.

    Raises:
        OptimizationError: not a module; or `strict_validation`, and something was found.
    """
    if not isinstance(model, nn.Module):
        raise OptimizationError(f"expected a torch.nn.Module, got {type(model).__name__}")
    findings = Findings(tuple(_impossible(model)), tuple(_slow_weights(model)))
    return _strictly(findings, config, OptimizationError)


def _impossible(model: nn.Module) -> Iterator[str]:
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.dtype in _IMPOSSIBLE:
            yield f"{name} is {tensor.dtype}, which a TPU does not have"


def _slow_weights(model: nn.Module) -> Iterator[str]:
    for name, weight in model.named_parameters():
        if weight.dtype is torch.float64:
            yield f"{name} is float64, which a TPU computes in software"
        layout = tiled(weight.shape, weight.dtype)
        if weight.dim() >= 2 and layout.waste > _WASTE:
            yield f"{name} {tuple(weight.shape)} leaves {layout.waste:.0%} of its tiles empty"


def _strictly(
    findings: Findings,
    config: TPUConfig,
    error: type[ConfigurationError] | type[OptimizationError],
) -> Findings:
    found = findings.errors + findings.warnings
    if config.strict_validation and found:
        raise error("; ".join(found))
    return findings


# What XLA calls them: six, three and one pass of bfloat16 for a product of float32 numbers
MATMUL_PRECISIONS = ("highest", "high", "default")


class XLADeviceManager:
    """The devices of this process."""

    def __init__(self, xla: XLA) -> None:
        self.xla = xla
        self.devices = xla.devices()
        self.device = xla.device()

    def require_tpu(self) -> torch.device:
        """The device, if it is a TPU.

        Raises:
            NotAvailable: it is something else.
        """
        if not self.xla.is_tpu:
            raise NotAvailable(
                f"torch_xla computes on {self.xla.device_type}: set PJRT_DEVICE=TPU on a TPU VM"
            )
        return self.device

    def synchronize(self) -> None:
        """Run what is pending and wait for it."""
        self.xla.sync(wait=True)
        self.xla.wait()

    def info(self) -> dict[str, Any]:
        """What a person asks first."""
        return {
            "device": str(self.device),
            "devices": len(self.devices),
            "type": self.xla.device_type,
            "accelerator": self.xla.accelerator,
            "world_size": self.xla.world_size,
            "ordinal": self.xla.ordinal,
            "torch_xla": self.xla.version,
        }


class XLADistributedTraining:
    """Data parallelism: every process has the same weights and its own batch."""

    def __init__(self, xla: XLA) -> None:
        self.xla = xla
        self.rank, self.world_size = xla.ordinal, xla.world_size

    def mean(self, tensor: Tensor) -> Tensor:
        """The mean over all processes."""
        return tensor if self.world_size == 1 else self.xla.all_reduce(tensor) / self.world_size

    def average_gradients(self, model: nn.Module) -> int:
        """Replace each gradient by its mean over all processes; how many there were.

        Raises:
            DistributedError: there are none: no backward pass came before.
        """
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        if not gradients:
            raise DistributedError("no gradients to average: call backward first")
        for gradient in gradients:
            gradient.copy_(self.mean(gradient))
        return len(gradients)

    def shard(self, batch: Tensor) -> Tensor:
        """This process's rows of a batch [N, ...].

        Raises:
            DistributedError: N is not a multiple of the number of processes.
        """
        if len(batch) % self.world_size:
            raise DistributedError(
                f"{len(batch)} rows cannot be dealt to {self.world_size} processes"
            )
        return batch.chunk(self.world_size)[self.rank]


class XLAOptimizations:
    """XLA's settings for all that is compiled from now on."""

    def __init__(self, config: TPUConfig, xla: XLA) -> None:
        self.config, self.xla = config, xla

    def set_matmul_precision(self) -> PassResult:
        """What float32 products may lose, by the settings' `xla_optimization_level`."""
        name, wanted = "matmul_precision", MATMUL_PRECISIONS[self.config.xla_optimization_level]
        before = self.xla.matmul_precision
        if before is None:
            return PassResult(name, False, reason=f"torch_xla {self.xla.version} has no such knob")
        self.xla.set_matmul_precision(wanted)
        if before == wanted:
            return PassResult(name, False, reason=f"already {wanted}")
        return PassResult(name, True, evidence=f"{before} -> {self.xla.matmul_precision}")


class XLAUtilities:
    """Figures that XLA keeps."""

    def __init__(self, xla: XLA) -> None:
        self.xla = xla

    def compilation_metrics(self) -> dict[str, float]:
        """Graphs compiled in this process, and the seconds that took."""
        told = self.xla.compilations()
        return {"count": told.count, "seconds": told.seconds}

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Those of `variables` that PJRT, libtpu and XLA listen to."""
        prefixes = ("PJRT_", "TPU_", "XLA_", "LIBTPU_")
        return {k: v for k, v in sorted(variables.items()) if k.startswith(prefixes)}


def create_xla_integration(
    config: TPUConfig, xla: XLA
) -> tuple[XLADeviceManager, XLADistributedTraining, XLAOptimizations]:
    """The three together.

    Raises:
        ConfigurationError: the settings say that there is no TPU (`enabled` is False).
    """
    if config.enabled is False:
        raise ConfigurationError("enabled is False: the settings keep this job off the TPU")
    return XLADeviceManager(xla), XLADistributedTraining(xla), XLAOptimizations(config, xla)


def _loaded() -> tuple[XLA | None, str | None]:
    """The installed torch_xla, or why there is none."""
    try:
        return load(), None
    except NotAvailable as error:
        return None, str(error)


def _chip(xla: XLA) -> Hardware:
    """By the version that it tells, `unknown` where that is none of ours."""
    told = xla.accelerator
    try:
        version = detect_tpu_version(told).value
    except ValueError:
        version = "unknown"
    gib = MEMORY_GB.get(version, 0)
    return Hardware.tpu(version, name=told, memory_bytes=gib * 2**30)


class TPUBackend(Backend):
    """A TPU: `xla` is the installed torch_xla unless another one is given.

    `degraded` says why there is no TPU behind it; None where there is one. Training ends its graph
    with the optimizer's step, so nothing is compiled ahead of it: see `compiler`.
    """

    name = "tpu"
    vendor = "google"

    def __init__(
        self,
        config: Config | None = None,
        *,
        hardware: Hardware | None = None,
        device: torch.device | str | None = None,
        xla: XLA | None = None,
    ) -> None:
        """As every backend's.

        Raises:
            NotAvailable: the settings insist (`enabled`), and there is no TPU.
            ConfigurationError: they do not fit the chip.
        """
        found, self.degraded = (xla, None) if xla is not None else _loaded()
        if found is not None and not found.is_tpu:
            self.degraded = f"torch_xla computes on {found.device_type}, not on a TPU"
        self.xla = None if self.degraded else found
        devices = self.xla.devices() if self.xla is not None else []
        if hardware is None and self.xla is not None:
            hardware = _chip(self.xla)
        super().__init__(config, hardware=hardware, device=device or next(iter(devices), None))
        self.devices = devices
        if self.settings.enabled:
            self.require_xla()
        findings = validate_config(self.settings, self.xla) if self.xla is not None else None
        if findings is not None and not findings.passed:
            raise ConfigurationError("; ".join(findings.errors))
        self.compiler = XLACompiler(self.settings, self.xla) if self.xla is not None else None

    @property
    def settings(self) -> TPUConfig:
        """The TPU's part of the config."""
        return self.config.hardware.tpu

    @classmethod
    def find_devices(cls) -> list[torch.device]:
        """This process's TPUs."""
        found, _ = _loaded()
        return found.devices() if found is not None and found.is_tpu else []

    def require_xla(self) -> XLA:
        """torch_xla in front of a TPU.

        Raises:
            NotAvailable: `degraded` says why; the message, what to install.
        """
        if self.xla is None:
            raise NotAvailable(str(self.degraded))
        return self.xla

    @property
    def rank(self) -> int:
        """This process among `world_size`."""
        return 0 if self.xla is None else self.xla.ordinal

    @property
    def world_size(self) -> int:
        """Processes in the job."""
        return 1 if self.xla is None else self.xla.world_size

    def passes(self, level: str, training: bool) -> Sequence[Pass]:
        """XLA lays out and fuses by itself; what is left are folding, precision and compiling."""
        if self.xla is None:
            return passes_of(level, training=training)
        narrow = () if training or self.settings.precision == "float32" else (bfloat16,)
        folded = () if training else (fold_conv_bn,)
        steps = (
            (to_device, set_mode),
            (*folded, self._set_matmul_precision),
            (*narrow, self._compile),
        )
        return [one for step in steps[: LEVELS.index(level) + 1] for one in step]

    def _set_matmul_precision(
        self, model: nn.Module, setting: Setting
    ) -> tuple[nn.Module, PassResult]:
        return model, XLAOptimizations(self.settings, self.xla).set_matmul_precision()

    def _compile(self, model: nn.Module, setting: Setting) -> tuple[nn.Module, PassResult]:
        if setting.training:
            reason = "the optimizer's step ends the graph: compiler.optimize_for_training"
            return model, PassResult("compile", False, reason=reason)
        try:
            compiled = self.compiler.compile_model(model, setting.sample_inputs)
        except CompilationError as error:
            return model, PassResult("compile", False, reason=str(error))
        one = compiled.compilation
        made = f"{one.graphs} new graph(s)" if one.graphs else "a graph that XLA had"
        evidence = f"{made} in {one.seconds:.2f} s, relative error {one.error:.1e} to the CPU"
        return compiled, PassResult("compile", True, evidence=evidence)

    def prepare_model(self, model: nn.Module | None, **options: Any) -> Prepared | None:
        """As every backend's, after a look at what a TPU cannot do.

        Raises:
            OptimizationError: the model holds something that a TPU has not.
        """
        findings = validate_model(model, self.settings) if isinstance(model, nn.Module) else None
        if findings is not None and findings.errors and self.xla is not None:
            raise OptimizationError("; ".join(findings.errors))
        prepared = super().prepare_model(model, **options)
        if prepared is None or findings is None or self.xla is None:
            return prepared
        return dataclasses.replace(prepared, warnings=prepared.warnings + findings.warnings)

    def prepare_data(self, data: Any) -> Any:
        """Tensors in any nesting of dicts, lists and tuples, on the device.

        Raises:
            DataError: there is no tensor in it.
        """
        if not any(isinstance(leaf, Tensor) for leaf in tree_leaves(data)):
            raise DataError(f"no tensor in {type(data).__name__}: nothing to move")
        return self.to_device(data)

    def get_memory_stats(self) -> dict[str, int]:
        """As every backend's; XLA reserves nothing beyond what is used."""
        if self.xla is None:
            return super().get_memory_stats()
        told = self.xla.memory(self.device)
        peak = told.used if told.peak is None else told.peak
        return memory.Stats(told.limit, told.free, told.used, told.used, peak).to_dict()

    def synchronize(self) -> None:
        """Run what is pending and wait for it."""
        if self.xla is None:
            super().synchronize()
        else:
            self.xla.sync(wait=True)

    def empty_cache(self) -> None:
        """Forget the compiled models, and collect garbage."""
        if self.compiler is not None:
            self.compiler.clear_cache()
        super().empty_cache()

    def save(self, model: nn.Module, path: str | os.PathLike[str]) -> None:
        """Write the model's state as CPU tensors; on a TPU from the first process only."""
        if self.xla is None:
            torch.save(model.state_dict(), path)
        else:
            self.xla.save(model.state_dict(), os.fspath(path))

    def load(self, model: nn.Module, path: str | os.PathLike[str]) -> None:
        """Read what `save` wrote into the model.

        Raises:
            CheckpointError: no such file, or it is another model's.
        """
        try:
            model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise CheckpointError(f"{os.fspath(path)}: {error}") from error


@dataclass(frozen=True, slots=True)
class OptimizerStats:
    """Models optimised per level, and how often each pass was applied."""

    levels: dict[str, int]
    applied: dict[str, int]


class TPUOptimizer(Optimizer):
    """Applies a level to a model. With `strict_validation` every pass of it must be applied."""

    def __init__(self, config: Config | None = None, *, xla: XLA | None = None) -> None:
        self.backend = TPUBackend(config, xla=xla)
        self._levels: Counter[str] = Counter()
        self._applied: Counter[str] = Counter()

    def optimize(self, model: nn.Module, *given: Any, **options: Any) -> OptimizationResult:
        """As every optimizer's.

        Raises:
            TypeError: the model is no module.
            OptimizationError: `strict_validation`, and compiling was refused.
        """
        result = super().optimize(model, *given, **options)
        refused = [r.reason for r in result.passes if r.name == "compile" and not r.applied]
        if self.backend.settings.strict_validation and refused and not options.get("training"):
            raise OptimizationError(f"not compiled: {refused[0]}")
        self._levels[result.optimization_level] += 1
        self._applied.update(result.optimizations_applied)
        return result

    @property
    def stats(self) -> OptimizerStats:
        """So far."""
        return OptimizerStats(dict(self._levels), dict(self._applied))
