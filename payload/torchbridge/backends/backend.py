"""What all backends are: a device, what it can do, and the passes that suit it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from torchbridge import memory, passes
from torchbridge.backends.optimise import LEVELS, passes_of
from torchbridge.config import Config
from torchbridge.device import synchronise
from torchbridge.hardware import Hardware, probe
from torchbridge.passes import Pass, Prepared, Setting


class Backend:
    """One vendor's device. Without such a device it says so and works on the CPU.

    `hardware` is what the rules go by: that of the device, unless one is given to try them with.
    A subclass tells its `name` and `vendor`, where its devices come from (`find_devices`), what its
    own settings choose (`device_index`, `level_of`), what it does to a model (`passes`), and by
    which errors it tells of a device that is not there and of a pass that raised.
    """

    name = "cpu"
    vendor = "cpu"
    compile_backend = "inductor"
    device_error: type[Exception] = ValueError
    pass_error: type[Exception] | None = None

    def __init__(
        self,
        config: Config | None = None,
        *,
        hardware: Hardware | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        """Raises nothing for want of a device: `is_available` and a warning tell of it.

        Raises:
            ValueError: `hardware` is another vendor's.
            ValueError, or the vendor's `device_error`: no device has the config's number.
        """
        self.config = config if config is not None else Config()
        self.devices = self.find_devices()
        self.device = torch.device(device) if device is not None else self._numbered_device()
        self.hardware = hardware if hardware is not None else probe(self.device)
        if hardware is not None and hardware.vendor != self.vendor:
            raise ValueError(f"{type(self).__name__} cannot use hardware of {hardware.vendor}")

    @classmethod
    def find_devices(cls) -> list[torch.device]:
        """This vendor's devices on this machine, the best first."""
        return [torch.device("cpu")]

    @property
    def device_index(self) -> int:
        """Which of `devices` the config chooses."""
        return self.config.hardware.device_id or 0

    def level_of(self, level: str | None) -> str:
        """The level's shared name; for None the config's."""
        return self.config.optimization_level if level is None else level

    def _numbered_device(self) -> torch.device:
        index = self.device_index
        if index < len(self.devices):
            return self.devices[index]
        if self.devices:
            message = f"device_id is {index}, there are {len(self.devices)} devices"
            raise self.device_error(message)
        message = f"no {self.vendor} device here: {type(self).__name__} works on the CPU"
        warnings.warn(message, stacklevel=4)
        return torch.device("cpu")

    @property
    def is_available(self) -> bool:
        """Has this machine a device of this vendor?"""
        return bool(self.devices)

    def passes(self, level: str, training: bool) -> Sequence[Pass]:
        """What is done to a model at a level."""
        return passes_of(level, training=training)

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

        None is returned for None, with a warning. An unknown level is balanced, with a warning.
        `sample_inputs` are positional arguments of forward; without them nothing is compiled. With
        them, each pass for speed is measured for `measure_s` seconds and kept where it helps.

        Raises:
            TypeError: the model is no module.
            The vendor's `pass_error`: a pass raised.
        """
        if model is None:
            warnings.warn("the model is None: nothing to prepare", stacklevel=2)
            return None
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected a torch.nn.Module, got {type(model).__name__}")
        known, complaints = _known(self.level_of(level))
        for complaint in complaints:
            warnings.warn(complaint, stacklevel=2)
        setting = self.setting(sample_inputs, training=training)
        setting = replace(setting, measure_s=measure_s)
        try:
            prepared = passes.apply(model, setting, self.passes(known, training), level=known)
        except (RuntimeError, NotImplementedError) as error:
            if self.pass_error is None:
                raise
            raise self.pass_error(f"{type(model).__name__}: {error}") from error
        return replace(prepared, warnings=complaints)

    def setting(self, sample_inputs: Sequence[Tensor] = (), *, training: bool = False) -> Setting:
        """What the passes may go by; the inputs are moved to the device."""
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
        """`prepare_model` at the aggressive level."""
        return self.prepare_model(model, level="aggressive", sample_inputs=sample_inputs)

    def optimize_for_training(self, model: nn.Module | None) -> Prepared | None:
        """`prepare_model` for training at the config's level."""
        return self.prepare_model(model, training=True)

    def get_device_info(self) -> dict[str, Any]:
        """What the rules go by, in plain values."""
        found = self.hardware
        return {
            "backend": self.name,
            "device": str(self.device),
            "available": self.is_available,
            "vendor": found.vendor,
            "name": found.name,
            "architecture": found.architecture,
            "target": found.target,
            "capability": found.capability,
            "memory_bytes": found.memory_bytes,
            "units": found.units,
            "features": sorted(found.features),
        }

    def get_memory_stats(self) -> dict[str, int]:
        """`memory.Stats` of the device, all in bytes."""
        return memory.stats(self.device).to_dict()

    def synchronize(self) -> None:
        """Wait until the device has done all that was asked of it."""
        synchronise(self.device)

    def empty_cache(self) -> None:
        """Give memory that is cached but unused back to the device."""
        memory.empty_cache(self.device)

    def set_device(self, device: torch.device | str) -> None:
        """Use another of `devices`.

        Raises:
            ValueError: not one of them.
        """
        wanted = torch.device(device)
        if wanted not in self.devices:
            raise ValueError(f"{wanted} is none of {[str(one) for one in self.devices]}")
        self.device, self.hardware = wanted, probe(wanted)

    def to_device(self, data: Any) -> Any:
        """Tensors, or tuples, lists and dicts of them, on the device; the rest as it is."""
        return tree_map_only(Tensor, lambda tensor: tensor.to(self.device), data)

    def cleanup(self) -> None:
        """Finish what is queued and give cached memory back."""
        self.synchronize()
        self.empty_cache()


class CPUBackend(Backend):
    """The processor: all shared passes; bfloat16 only where its features say so."""


def _known(level: str) -> tuple[str, tuple[str, ...]]:
    """A level's name, and a complaint if it had to be replaced."""
    name = str(getattr(level, "value", level))
    if name in LEVELS:
        return name, ()
    known = ", ".join(LEVELS)
    return "balanced", (f"unknown optimization level {name!r} (known: {known}): using balanced",)


@dataclass(frozen=True, slots=True)
class OptimizationResult:
    """What an optimizer gives back. `passes` say with what evidence; times are seconds."""

    optimized_model: nn.Module | None
    optimization_level: str
    optimizations_applied: tuple[str, ...]
    compilation_time: float
    memory_stats: dict[str, int]
    device_info: dict[str, Any]
    warnings: tuple[str, ...]
    passes: tuple[passes.PassResult, ...]


class Optimizer:
    """A backend's levels by their own names, with all there is to say about what they did."""

    backend_class: type[Backend] = Backend

    def __init__(self, config: Config | None = None, **options: Any) -> None:
        """As the backend's."""
        self.backend = self.backend_class(config, **options)

    def optimize(
        self,
        model: nn.Module,
        level: str | None = None,
        sample_inputs: Sequence[Tensor] = (),
        **options: Any,
    ) -> OptimizationResult:
        """Apply a level to the model itself; `warnings` tell what was asked for but not done.

        Options (`training`, `measure_s`) are those of the backend's `prepare_model`.

        Raises:
            TypeError: the model is no module.
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
        """The aggressive level."""
        return self.optimize(model, "aggressive", sample_inputs)

    def optimize_for_training(
        self, model: nn.Module, sample_inputs: Sequence[Tensor] = ()
    ) -> OptimizationResult:
        """The balanced level of training."""
        return self.optimize(model, "balanced", sample_inputs, training=True)
