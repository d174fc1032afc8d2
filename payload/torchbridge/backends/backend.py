"""The base class of all backends and of the optimizers that report what a backend did."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from torchbridge import memory, passes
from torchbridge.backends.errors import (
    ArchitectureError,
    ConfigurationError,
    DeviceError,
    NotAvailable,
    OptimizationError,
    OutOfMemory,
)
from torchbridge.backends.optimise import LEVELS, bfloat16, compile_model, passes_of
from torchbridge.config import Config, PrecisionFormat
from torchbridge.device import synchronise
from torchbridge.hardware import VENDORS, Hardware, probe
from torchbridge.passes import Pass, Prepared, Setting

_FACTS = "vendor name architecture target capability memory_bytes units"


class Backend:
    """One vendor's device; without such a device the backend warns and uses the CPU.

    `hardware` decides the rules; by default it is the device's, tests pass another. `settings` are
    the vendor's part of the config, with open values resolved by the hardware. A subclass sets
    `name` and `vendor`, a key of `VENDORS`.
    """

    name = "cpu"
    vendor = "cpu"
    compile_backend = "inductor"

    def __init__(
        self,
        config: Config | None = None,
        *,
        hardware: Hardware | None = None,
        device: torch.device | str | None = None,
        devices: Sequence[torch.device] | None = None,
    ) -> None:
        """Choose the device and check the settings against it; `devices` are detected unless given.

        A missing device only causes a warning, unless `enabled` is set.

        Raises:
            ValueError: `hardware` is of another vendor.
            DeviceError: no device has the config's `device_id`.
            ArchitectureError: the chip is not supported.
            ConfigurationError: the settings contradict the hardware.
            NotAvailable: `enabled` is set, and there is no device.
        """
        self.config = config if config is not None else Config()
        self.devices = self.find_devices() if devices is None else list(devices)
        asked = getattr(self.config.hardware, self.name, None)
        if asked is not None and asked.enabled and hardware is None:
            self.require_device()
        self.device = torch.device(device) if device is not None else self._numbered_device()
        self.hardware = hardware if hardware is not None else probe(self.device)
        if hardware is not None and hardware.vendor != self.vendor:
            raise ValueError(f"{type(self).__name__} cannot use hardware of {hardware.vendor}")
        if self.hardware.architecture == "unsupported":
            raise ArchitectureError(f"{self.hardware.target} is not supported by this library")
        self.settings = self._decided(asked)

    def _decided(self, asked: Any) -> Any:
        try:
            return asked.on(self.hardware) if asked is not None else None
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    @classmethod
    def find_devices(cls) -> list[torch.device]:
        """Return this vendor's devices; none if torch is built for another vendor."""
        maker = VENDORS[cls.vendor]
        if not maker.build:
            return [torch.device(maker.device)]
        if not getattr(torch.version, maker.build, None):
            return []
        count = getattr(torch, maker.device).device_count()
        return [torch.device(maker.device, index) for index in range(count)]

    def require_device(self) -> torch.device:
        """Return the first device.

        Raises:
            NotAvailable: there is no device; the message says why.
        """
        if self.devices:
            return self.devices[0]
        build = VENDORS[self.vendor].build
        built = getattr(torch.version, build, None)
        what = "sees no device" if built else f"is not built for {build}"
        raise NotAvailable(f"{self.name}: torch {torch.__version__} {what}")

    def level_of(self, level: str | None) -> str:
        """Resolve a level's name; None means the vendor settings' level, else the config's."""
        own = getattr(self.settings, "optimization_level", None)
        return level or own or self.config.optimization_level

    def _numbered_device(self) -> torch.device:
        index = self.config.hardware.device_id or 0
        if index < len(self.devices):
            return self.devices[index]
        if self.devices:
            raise DeviceError(f"device_id is {index}, there are {len(self.devices)} devices")
        message = f"no {self.vendor} device here: {type(self).__name__} works on the CPU"
        warnings.warn(message, stacklevel=4)
        return torch.device("cpu")

    @property
    def is_available(self) -> bool:
        """Whether this machine has a device of this vendor."""
        return bool(self.devices)

    def passes(self, level: str, training: bool) -> Sequence[Pass]:
        """Return the passes of a level; `default_precision` decides about bfloat16."""
        chosen = list(passes_of(level, training=training))
        stored = getattr(self.settings, "default_precision", None)
        if stored is None or training:
            return chosen
        chosen = [one for one in chosen if one is not bfloat16]
        if stored is PrecisionFormat.BF16:
            at = chosen.index(compile_model) if compile_model in chosen else len(chosen)
            chosen.insert(at, bfloat16)
        return chosen

    def prepare_model(
        self,
        model: nn.Module | None,
        *,
        level: str | None = None,
        sample_inputs: Sequence[Tensor] = (),
        training: bool = False,
        measure_s: float = 0.0,
    ) -> Prepared | None:
        """Apply the passes of `level`, by default the config's, to the model itself.

        For None it warns and returns None; an unknown level warns and becomes balanced.
        `sample_inputs` are positional arguments of forward; without them nothing is compiled. With
        them, each pass for speed is measured for `measure_s` seconds and kept if it helps.

        Raises:
            TypeError: `model` is not an nn.Module.
            OutOfMemory: the model does not fit on the device.
            OptimizationError: a pass failed.
        """
        if model is None:
            warnings.warn("the model is None: nothing to prepare", stacklevel=2)
            return None
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected a torch.nn.Module, got {type(model).__name__}")
        known, complaints = _known(self.level_of(level))
        for complaint in complaints:
            warnings.warn(complaint, stacklevel=2)
        setting = replace(self.setting(sample_inputs, training=training), measure_s=measure_s)
        try:
            prepared = passes.apply(model, setting, self.passes(known, training), level=known)
        except torch.OutOfMemoryError as error:
            raise OutOfMemory(f"Insufficient GPU memory for the model: {error}") from error
        except (RuntimeError, NotImplementedError) as error:
            raise OptimizationError(f"{type(model).__name__}: {error}") from error
        return replace(prepared, warnings=complaints)

    def setting(self, sample_inputs: Sequence[Tensor] = (), *, training: bool = False) -> Setting:
        """Return the passes' input from device and config; moves the inputs to the device."""
        kernels = self.config.kernels
        return Setting(
            self.device,
            self.hardware,
            training,
            self.to_device(tuple(sample_inputs)),
            kernels.fusion,
            self.compile_backend if kernels.compile else None,
            kernels.compile_mode,
        )

    def optimize_for_inference(
        self, model: nn.Module | None, sample_inputs: Sequence[Tensor] = ()
    ) -> Prepared | None:
        """Call `prepare_model` at the aggressive level."""
        return self.prepare_model(model, level="aggressive", sample_inputs=sample_inputs)

    def optimize_for_training(self, model: nn.Module | None) -> Prepared | None:
        """Call `prepare_model` for training at the config's level."""
        return self.prepare_model(model, training=True)

    def get_device_info(self) -> dict[str, Any]:
        """Return backend, device, hardware properties and availability as plain values."""
        values = {name: getattr(self.hardware, name) for name in _FACTS.split()}
        values |= {"features": sorted(self.hardware.features), "available": self.is_available}
        return {"backend": self.name, "device": str(self.device), **values}

    def get_memory_stats(self) -> dict[str, int]:
        """Return `memory.Stats` of the device as a dict, in bytes."""
        return memory.stats(self.device).to_dict()

    def synchronize(self) -> None:
        """Wait until the device has finished all queued work."""
        synchronise(self.device)

    def empty_cache(self) -> None:
        """Release unused cached memory to the device."""
        memory.empty_cache(self.device)

    def set_device(self, device: torch.device | str) -> None:
        """Switch to another of `devices`.

        Raises:
            ValueError: the device is not one of them.
        """
        wanted = torch.device(device)
        if wanted not in self.devices:
            raise ValueError(f"{wanted} is none of {[str(one) for one in self.devices]}")
        self.device, self.hardware = wanted, probe(wanted)

    def to_device(self, data: Any) -> Any:
        """Move all tensors in nested tuples, lists and dicts to the device; leave other values."""
        return tree_map_only(Tensor, lambda tensor: tensor.to(self.device), data)

    def cleanup(self) -> None:
        """Synchronise the device and release cached memory."""
        self.synchronize()
        self.empty_cache()


class CPUBackend(Backend):
    """Backend of the CPU; bfloat16 is used only if the CPU computes it natively."""


def _known(level: str) -> tuple[str, tuple[str, ...]]:
    """Return a level's name, and a warning if the name is unknown and was replaced."""
    name = str(getattr(level, "value", level))
    if name in LEVELS:
        return name, ()
    known = ", ".join(LEVELS)
    return "balanced", (f"unknown optimization level {name!r} (known: {known}): using balanced",)


@dataclass(frozen=True, slots=True)
class OptimizationResult:
    """What an optimizer did to a model; `compilation_time` is in seconds."""

    optimized_model: nn.Module | None
    optimization_level: str
    optimizations_applied: tuple[str, ...]
    compilation_time: float
    memory_stats: dict[str, int]
    device_info: dict[str, Any]
    warnings: tuple[str, ...]
    passes: tuple[passes.PassResult, ...]


class Optimizer:
    """Applies a backend's levels and reports which passes were applied."""

    backend_class: type[Backend] = Backend

    def __init__(self, config: Config | None = None, **options: Any) -> None:
        """Create the backend; options are those of its constructor."""
        self.backend = self.backend_class(config, **options)

    def optimize(
        self,
        model: nn.Module,
        level: str | None = None,
        sample_inputs: Sequence[Tensor] = (),
        **options: Any,
    ) -> OptimizationResult:
        """Apply a level to the model itself; `warnings` list the passes that were not applied.

        Options (`training`, `measure_s`) are those of the backend's `prepare_model`.

        Raises:
            TypeError: `model` is not an nn.Module.
        """
        if model is None:
            raise TypeError("expected a torch.nn.Module, got None")
        options["sample_inputs"] = sample_inputs
        prepared = self.backend.prepare_model(model, level=level, **options)
        skipped = tuple(f"{r.name}: {r.reason}" for r in prepared.passes if not r.applied)
        return OptimizationResult(
            prepared.model,
            prepared.level,
            prepared.applied,
            sum(r.seconds for r in prepared.passes if r.name == "compile" and r.applied),
            self.backend.get_memory_stats(),
            self.backend.get_device_info(),
            prepared.warnings + skipped,
            prepared.passes,
        )

    def optimize_for_inference(
        self, model: nn.Module, sample_inputs: Sequence[Tensor] = ()
    ) -> OptimizationResult:
        """Optimize at the aggressive level."""
        return self.optimize(model, "aggressive", sample_inputs)

    def optimize_for_training(
        self, model: nn.Module, sample_inputs: Sequence[Tensor] = ()
    ) -> OptimizationResult:
        """Optimize for training at the balanced level."""
        return self.optimize(model, "balanced", sample_inputs, training=True)
