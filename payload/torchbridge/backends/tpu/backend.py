"""Google's TPUs, by torch_xla. Without one it says so and works on the CPU."""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from torchbridge import memory
from torchbridge.backends.backend import Backend
from torchbridge.backends.optimise import (
    LEVELS,
    bfloat16,
    fold_conv_bn,
    passes_of,
    set_mode,
    to_device,
)
from torchbridge.backends.tpu.compiler import XLACompiler
from torchbridge.backends.tpu.exceptions import (
    TPUCheckpointError,
    TPUConfigurationError,
    TPUDataError,
    TPUModelError,
    XLACompilationError,
    XLANotAvailable,
)
from torchbridge.backends.tpu.integration import XLAOptimizations
from torchbridge.backends.tpu.validation import validate_config, validate_model
from torchbridge.backends.tpu.xla import XLA, load
from torchbridge.config import Config, TPUConfig, detect_tpu_version
from torchbridge.config.tpu import MEMORY_GB
from torchbridge.hardware import Hardware
from torchbridge.passes import Pass, PassResult, Prepared, Setting


def _loaded() -> tuple[XLA | None, str | None]:
    """The installed torch_xla, or why there is none."""
    try:
        return load(), None
    except XLANotAvailable as error:
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
            XLANotAvailable: the settings insist (`enabled`), and there is no TPU.
            TPUConfigurationError: they do not fit the chip.
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
            raise TPUConfigurationError("; ".join(findings.errors))
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
            XLANotAvailable: `degraded` says why; the message, what to install.
        """
        if self.xla is None:
            raise XLANotAvailable(str(self.degraded))
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
        except XLACompilationError as error:
            return model, PassResult("compile", False, reason=str(error))
        one = compiled.compilation
        made = f"{one.graphs} new graph(s)" if one.graphs else "a graph that XLA had"
        evidence = f"{made} in {one.seconds:.2f} s, relative error {one.error:.1e} to the CPU"
        return compiled, PassResult("compile", True, evidence=evidence)

    def prepare_model(
        self,
        model: nn.Module | None,
        *,
        level: str | None = None,
        sample_inputs: Sequence[Tensor] = (),
        training: bool = False,
        measure_s: float = 0.0,
    ) -> Prepared | None:
        """As every backend's, after a look at what a TPU cannot do.

        Raises:
            TPUModelError: the model holds something that a TPU has not.
        """
        findings = validate_model(model, self.settings) if isinstance(model, nn.Module) else None
        if findings is not None and findings.errors and self.xla is not None:
            raise TPUModelError("; ".join(findings.errors))
        options = {"sample_inputs": sample_inputs, "training": training, "measure_s": measure_s}
        prepared = super().prepare_model(model, level=level, **options)
        if prepared is None or findings is None or self.xla is None:
            return prepared
        return dataclasses.replace(prepared, warnings=prepared.warnings + findings.warnings)

    def prepare_data(self, data: Any) -> Any:
        """Tensors in any nesting of dicts, lists and tuples, on the device.

        Raises:
            TPUDataError: there is no tensor in it.
        """
        if not any(isinstance(leaf, Tensor) for leaf in tree_leaves(data)):
            raise TPUDataError(f"no tensor in {type(data).__name__}: nothing to move")
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
            TPUCheckpointError: no such file, or it is another model's.
        """
        try:
            model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise TPUCheckpointError(f"{os.fspath(path)}: {error}") from error
