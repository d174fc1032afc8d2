"""Metadata of an exported file, read from the model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchbridge import __version__
from torchbridge.hardware import Hardware, probe
from torchbridge.kernels.fused import FusedLinear
from torchbridge.memory import storage_bytes
from torchbridge.passes import Prepared

if TYPE_CHECKING:
    from typing_extensions import Self

SCHEMA = 1
KEY = "torchbridge"  # under which it is stored in the formats that hold texts by name


class _Facts:
    """Base class of metadata that converts to and from JSON's dictionaries and lists."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as dictionaries, lists and values of JSON."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Build from the result of `to_dict`.

        Raises:
            ValueError: an unknown key.
        """
        return cls._of(facts)

    @classmethod
    def _of(cls, facts: Mapping[str, Any]) -> Self:
        names = {one.name for one in dataclasses.fields(cls)}
        if unknown := set(facts) - names:
            raise ValueError(f"{cls.__name__} knows no {', '.join(sorted(unknown))}")
        tuples = {n: tuple(v) if isinstance(v, list) else v for n, v in facts.items()}
        return cls(**tuples)


@dataclass(frozen=True, slots=True)
class HardwareMetadata(_Facts):
    """The hardware that a file was exported on; see `torchbridge.hardware.Hardware`."""

    vendor: str = "cpu"
    name: str = ""
    architecture: str = ""
    target: str = ""
    memory_bytes: int = 0
    units: int = 0
    features: tuple[str, ...] = ()

    @classmethod
    def from_hardware(cls, hardware: Hardware) -> HardwareMetadata:
        """Build from a `Hardware`."""
        facts = {one.name: getattr(hardware, one.name) for one in dataclasses.fields(cls)}
        return cls(**facts | {"features": tuple(sorted(hardware.features))})


@dataclass(frozen=True, slots=True)
class FusionMetadata(_Facts):
    """Operations fused into one layer; `modules` are the layers' names in the model."""

    name: str
    operations: tuple[str, ...]
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OptimizationMetadata(_Facts):
    """Facts about a model, its inputs, the passes applied to it and the hardware.

    `bytes` counts the storages of parameters and buffers, shared ones once. `inputs` are like
    "int64[batch, 64]"; `passes` maps applied passes to their evidence.
    """

    model: str = ""
    format: str = ""
    parameters: int = 0
    bytes: int = 0
    dtypes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    level: str = ""
    passes: Mapping[str, str] = field(default_factory=dict)
    fusions: tuple[FusionMetadata, ...] = ()
    hardware: HardwareMetadata = HardwareMetadata()
    torch: str = str(torch.__version__)
    torchbridge: str = __version__
    schema: int = SCHEMA

    def add_fusion(self, fusion: FusionMetadata) -> OptimizationMetadata:
        """Return a copy with one more fusion.

        Raises:
            ValueError: a fusion of that name exists already.
        """
        if any(one.name == fusion.name for one in self.fusions):
            raise ValueError(f"fusion {fusion.name!r} is already recorded")
        return dataclasses.replace(self, fusions=(*self.fusions, fusion))

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> OptimizationMetadata:
        """Build from the result of `to_dict`.

        Raises:
            ValueError: a key is unknown, or the schema is another one.
        """
        if facts.get("schema") != SCHEMA:
            found = facts.get("schema")
            raise ValueError(f"metadata of schema {found}; this library reads schema {SCHEMA}")
        known = dict(facts)
        known["fusions"] = [FusionMetadata.from_dict(one) for one in known.get("fusions", ())]
        known["hardware"] = HardwareMetadata.from_dict(known.get("hardware", {}))
        return cls._of(known)

    def to_json(self) -> str:
        """Return one line of JSON; equal metadata give equal lines."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> OptimizationMetadata:
        """Build from the result of `to_json`."""
        return cls.from_dict(json.loads(text))

    def save(self, path: str | Path) -> None:
        """Write the metadata to a JSON file."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n", "utf-8")

    @classmethod
    def load(cls, path: str | Path) -> OptimizationMetadata:
        """Read a file that `save` wrote."""
        return cls.from_json(Path(path).read_text("utf-8"))

    def summary(self) -> str:
        """Summarise the metadata in five lines of text."""
        fusions = ", ".join(f"{one.name} ({len(one.modules)})" for one in self.fusions)
        dtypes = ", ".join(self.dtypes) or "no dtype"
        where = f"{self.hardware.vendor} {self.hardware.architecture}".strip()
        lines = [
            f"{self.model} as {self.format or 'a model in memory'}",
            f"  {self.parameters:,} parameters, {self.bytes / 1e6:.2f} MB, {dtypes}",
            f"  inputs: {', '.join(self.inputs) or 'not recorded'}",
            f"  passes: {', '.join(self.passes) or 'none'}; fusions: {fusions or 'none'}",
            f"  made on {where} by torch {self.torch}, torchbridge {self.torchbridge}",
        ]
        return "\n".join(lines)


def create_metadata_from_model(
    model: nn.Module,
    sample_inputs: Sequence[Tensor] = (),
    *,
    dynamic: Sequence[Mapping[int, Any]] = (),
    file_format: str = "",
    prepared: Prepared | None = None,
    hardware: Hardware | None = None,
) -> OptimizationMetadata:
    """Read the metadata from a model.

    `dynamic` names the dynamic axes as in `Plan.from_inputs`; `prepared` has the applied passes.
    """
    tensors = [*model.parameters(), *model.buffers()]
    axes = dynamic or ({},) * len(sample_inputs)
    applied = [result for result in prepared.passes if result.applied] if prepared else []
    return OptimizationMetadata(
        model=type(model).__name__,
        format=file_format,
        parameters=sum(one.numel() for one in model.parameters()),
        bytes=storage_bytes(tensors),
        dtypes=tuple(sorted({_dtype(one) for one in tensors})),
        inputs=tuple(_spec(one, names) for one, names in zip(sample_inputs, axes, strict=True)),
        level=prepared.level if prepared else "",
        passes={result.name: result.evidence for result in applied},
        fusions=_fusions(model),
        hardware=HardwareMetadata.from_hardware(hardware or probe()),
    )


def _fusions(model: nn.Module) -> tuple[FusionMetadata, ...]:
    found: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        if isinstance(module, FusedLinear):
            found.setdefault(module.activation, []).append(name)
    return tuple(
        FusionMetadata(f"linear_{activation}", ("linear", activation), tuple(names))
        for activation, names in sorted(found.items())
    )


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _spec(tensor: Tensor, names: Mapping[int, Any]) -> str:
    sizes = [str(size) for size in tensor.shape]
    for axis, dim in names.items():
        sizes[axis] = getattr(dim, "__name__", str(dim))
    return f"{_dtype(tensor)}[{', '.join(sizes)}]"
