"""Google TPUs by torch_xla; without a TPU the CPU is used."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from torchbridge.backends.backend import Backend, OptimizationResult, Optimizer
from torchbridge.backends.errors import (
    CompilationError,
    ConfigurationError,
    DataError,
    DistributedError,
    NotAvailable,
    OptimizationError,
)
from torchbridge.backends.memory import TPUMemoryManager, tiled  # noqa: F401  offered here
from torchbridge.backends.optimise import (
    LEVELS,
    bfloat16,
    fold_conv_bn,
    set_mode,
    to_device,
)
from torchbridge.backends.xla import XLA, CompiledModel, XLACompiler, load  # noqa: F401
from torchbridge.config import Config, TPUConfig, TPUTopology
from torchbridge.hardware import TPU_CHIPS, Hardware, tpu_version
from torchbridge.passes import Pass, PassResult, Prepared, Setting

_WASTE = 0.5  # a weight that fills less than half of its tiles is worth a warning
_IMPOSSIBLE = (torch.complex128, torch.qint8, torch.quint8)
# What XLA calls them: six, three and one pass of bfloat16 for a product of float32 numbers
MATMUL_PRECISIONS = ("highest", "high", "default")


@dataclass(frozen=True, slots=True)
class Findings:
    """Problems found: `errors` prevent the use of the TPU, `warnings` make it slow."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether there are no errors."""
        return not self.errors

    def refused(self, config: TPUConfig, error: type[Exception]) -> Findings:
        """Return self; with `strict_validation` raise `error` if there is any finding."""
        if config.strict_validation and (self.errors or self.warnings):
            raise error("; ".join(self.errors + self.warnings))
        return self


def validate_config(config: TPUConfig, xla: XLA) -> Findings:
    """Check the settings against the chip.

    Raises:
        ConfigurationError: `strict_validation` is set, and there is a finding.
    """
    findings = Findings(tuple(_misfits(config, xla)), tuple(_slow_settings(config)))
    return findings.refused(config, ConfigurationError)


def _misfits(config: TPUConfig, xla: XLA) -> Iterator[str]:
    asked, found = config.version.value, tpu_version(xla.accelerator)
    if found and asked not in ("auto", found):
        yield f"version is {asked}, the chip is {found}"
    here = found or asked
    chip = TPU_CHIPS.get(here)
    if config.memory_gb and chip and config.memory_gb > chip.gib:
        yield f"memory_gb is {config.memory_gb:g}, a {here} chip has {chip.gib}"
    if config.topology is TPUTopology.SINGLE and xla.world_size > 8:
        yield f"topology is single, the job has {xla.world_size} devices"


def _slow_settings(config: TPUConfig) -> Iterator[str]:
    if config.dynamic_shapes:
        yield "dynamic_shapes: XLA compiles again for every shape"
    if config.precision == "float32" and config.xla_optimization_level == 0:
        yield "float32 at level 0: every product takes six passes of bfloat16"


def validate_model(model: nn.Module, config: TPUConfig) -> Findings:
    """Check that a TPU can store the model's weights and multiply them efficiently.

    Raises:
        OptimizationError: not an nn.Module; or `strict_validation` is set, and there is a finding.
    """
    if not isinstance(model, nn.Module):
        raise OptimizationError(f"expected a torch.nn.Module, got {type(model).__name__}")
    errors = tuple(
        f"{name} is {tensor.dtype}, which a TPU does not have"
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
        if tensor.dtype in _IMPOSSIBLE
    )
    return Findings(errors, tuple(_slow_weights(model))).refused(config, OptimizationError)


def _slow_weights(model: nn.Module) -> Iterator[str]:
    for name, weight in model.named_parameters():
        if weight.dtype is torch.float64:
            yield f"{name} is float64, which a TPU computes in software"
        layout = tiled(weight.shape, weight.dtype)
        if weight.dim() >= 2 and layout.waste > _WASTE:
            yield f"{name} {tuple(weight.shape)} leaves {layout.waste:.0%} of its tiles empty"


class XLADeviceManager:
    """List the XLA devices of this process."""

    def __init__(self, xla: XLA) -> None:
        self.xla, self.devices, self.device = xla, xla.devices(), xla.device()

    def require_tpu(self) -> torch.device:
        """Return the device if it is a TPU.

        Raises:
            NotAvailable: it is not a TPU.
        """
        if not self.xla.is_tpu:
            raise NotAvailable(
                f"torch_xla computes on {self.xla.device_type}: set PJRT_DEVICE=TPU on a TPU VM"
            )
        return self.device

    def info(self) -> dict[str, Any]:
        """Return devices, type, accelerator, world size, ordinal and torch_xla's version."""
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
        """Return the mean of a tensor over all processes."""
        if self.world_size == 1:
            return tensor
        return self.xla.model.all_reduce("sum", tensor) / self.world_size

    def shard(self, batch: Tensor) -> Tensor:
        """Return this process's rows of a batch [N, ...].

        Raises:
            DistributedError: N is not a multiple of the number of processes.
        """
        if len(batch) % self.world_size:
            raise DistributedError(
                f"{len(batch)} rows cannot be dealt to {self.world_size} processes"
            )
        return batch.chunk(self.world_size)[self.rank]


class XLAOptimizations:
    """Apply XLA's process-wide settings to graphs compiled from now on."""

    def __init__(self, config: TPUConfig, xla: XLA) -> None:
        self.config, self.xla = config, xla

    def set_matmul_precision(self) -> PassResult:
        """Set the precision of float32 products by the settings' `xla_optimization_level`."""
        wanted = MATMUL_PRECISIONS[self.config.xla_optimization_level]
        before = self.xla.matmul_precision
        self.xla.set_matmul_precision(wanted)
        after = self.xla.matmul_precision
        if before == after:
            return PassResult("matmul_precision", False, reason=f"already {after}")
        return PassResult("matmul_precision", True, evidence=f"{before} -> {after}")


class XLAUtilities:
    """Return XLA's metrics."""

    def __init__(self, xla: XLA) -> None:
        self.xla = xla

    def compilation_metrics(self) -> dict[str, float]:
        """Return the number of graphs compiled in this process and their total seconds."""
        return dataclasses.asdict(self.xla.compilations())


def create_xla_integration(
    config: TPUConfig, xla: XLA
) -> tuple[XLADeviceManager, XLADistributedTraining, XLAOptimizations]:
    """Return the device manager, distributed training and optimizations.

    Raises:
        ConfigurationError: `enabled` is False.
    """
    if config.enabled is False:
        raise ConfigurationError("enabled is False: the settings keep this job off the TPU")
    return XLADeviceManager(xla), XLADistributedTraining(xla), XLAOptimizations(config, xla)


def _found(xla: XLA | None) -> tuple[XLA | None, str | None]:
    """Return (torch_xla, None) if it computes on a TPU, else (None, reason)."""
    try:
        xla = xla or load()
    except NotAvailable as error:
        return None, str(error)
    if xla.is_tpu:
        return xla, None
    return None, f"torch_xla computes on {xla.device_type}, not on a TPU"


class TPUBackend(Backend):
    """Backend of TPUs by `xla`, by default the installed torch_xla.

    `degraded` says why no TPU is used, None if one is. In training nothing is compiled ahead,
    because the optimizer's step ends the graph; see `compiler`.
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
        """Choose the device and check the settings as `Backend` does.

        Raises:
            NotAvailable: `enabled` is set, and there is no TPU.
            ConfigurationError: the settings contradict the chip.
        """
        self.xla, self.degraded = _found(xla)
        if hardware is None and self.xla is not None:
            kind = self.xla.accelerator
            hardware = Hardware.tpu(kind, name=kind)
        devices = [] if self.xla is None else self.xla.devices()
        super().__init__(config, hardware=hardware, device=device, devices=devices)
        self.compiler = XLACompiler(self.settings, self.xla) if self.xla is not None else None

    def _decided(self, asked: TPUConfig) -> TPUConfig:
        if self.xla is not None:
            findings = validate_config(asked, self.xla)
            if not findings.passed:
                raise ConfigurationError("; ".join(findings.errors))
        return asked

    @classmethod
    def find_devices(cls) -> list[torch.device]:
        """Return the TPUs of this process."""
        xla, _ = _found(None)
        return [] if xla is None else xla.devices()

    def require_device(self) -> torch.device:
        """Return the first TPU.

        Raises:
            NotAvailable: there is no TPU; the message says why.
        """
        if self.xla is None:
            raise NotAvailable(str(self.degraded))
        return self.xla.device()

    @property
    def rank(self) -> int:
        """Index of this process among `world_size`."""
        return 0 if self.xla is None else self.xla.ordinal

    @property
    def world_size(self) -> int:
        """Number of processes in the job."""
        return 1 if self.xla is None else self.xla.world_size

    def passes(self, level: str, training: bool) -> Sequence[Pass]:
        """Return the passes for XLA, which does layout and fusion itself."""
        if self.xla is None:
            return super().passes(level, training)
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
        """Apply the passes as `Backend.prepare_model`, after `validate_model`.

        Raises:
            OptimizationError: the model has tensors of a dtype that a TPU lacks.
        """
        if self.xla is None or not isinstance(model, nn.Module):
            return super().prepare_model(model, **options)
        findings = validate_model(model, self.settings)
        if findings.errors:
            raise OptimizationError("; ".join(findings.errors))
        prepared = super().prepare_model(model, **options)
        return dataclasses.replace(prepared, warnings=prepared.warnings + findings.warnings)

    def prepare_data(self, data: Any) -> Any:
        """Move the tensors in nested dicts, lists and tuples to the device.

        Raises:
            DataError: the data contain no tensor.
        """
        if not any(isinstance(leaf, Tensor) for leaf in tree_leaves(data)):
            raise DataError(f"no tensor in {type(data).__name__}: nothing to move")
        return self.to_device(data)

    def get_memory_stats(self) -> dict[str, int]:
        """Return the device's memory usage as a dict, in bytes."""
        if self.xla is None:
            return super().get_memory_stats()
        return self.xla.memory(self.device).to_dict()

    def synchronize(self) -> None:
        """Run pending operations and wait for them."""
        if self.xla is None:
            super().synchronize()
        else:
            self.xla.sync(wait=True)

    def empty_cache(self) -> None:
        """Remove the compiled models and collect garbage."""
        if self.compiler is not None:
            self.compiler.clear_cache()
        super().empty_cache()


@dataclass(frozen=True, slots=True)
class OptimizerStats:
    """Number of models optimized per level, and of applications per pass."""

    levels: dict[str, int]
    applied: dict[str, int]


class TPUOptimizer(Optimizer):
    """Optimizer of TPUs; with `strict_validation` a model must be compiled."""

    backend_class = TPUBackend

    def __init__(self, config: Config | None = None, **options: Any) -> None:
        """Create the backend; options are those of its constructor."""
        super().__init__(config, **options)
        self._levels: Counter[str] = Counter()
        self._applied: Counter[str] = Counter()

    def optimize(self, model: nn.Module, *given: Any, **options: Any) -> OptimizationResult:
        """Apply a level as `Optimizer.optimize` and count it.

        Raises:
            TypeError: `model` is not an nn.Module.
            OptimizationError: `strict_validation` is set, and the model was not compiled.
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
        """Models optimized per level and passes applied, since construction."""
        return OptimizerStats(dict(self._levels), dict(self._applied))
