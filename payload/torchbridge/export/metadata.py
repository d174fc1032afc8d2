"""What is written into an exported file about the model, read off the model itself."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchbridge import __version__
from torchbridge.hardware import Hardware, probe
from torchbridge.kernels.layers import FusedLinear
from torchbridge.passes import Prepared

SCHEMA = 1
KEY = "torchbridge"  # under which it is stored in the formats that hold texts by name


@dataclass(frozen=True, slots=True)
class HardwareMetadata:
    """The hardware that a file was made on; see `torchbridge.hardware.Hardware`."""

    vendor: str = "cpu"
    name: str = ""
    architecture: str = ""
    target: str = ""
    memory_bytes: int = 0
    units: int = 0
    features: tuple[str, ...] = ()

    @classmethod
    def of(cls, hardware: Hardware) -> HardwareMetadata:
        """As probed or told."""
        names = [one.name for one in dataclasses.fields(cls) if one.name != "features"]
        facts = {name: getattr(hardware, name) for name in names}
        return cls(**facts, features=tuple(sorted(hardware.features)))

    def to_dict(self) -> dict[str, Any]:
        """As JSON knows it."""
        return _plain(self)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> HardwareMetadata:
        """The inverse of `to_dict`.

        Raises:
            ValueError: an unknown key.
        """
        known = _known(cls, facts)
        return cls(**known | {"features": tuple(known.get("features", ()))})


@dataclass(frozen=True, slots=True)
class FusionMetadata:
    """Operations that one layer computes as one: `modules` are the layers' names in the model."""

    name: str
    operations: tuple[str, ...]
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OptimizationMetadata:
    """A model, its inputs, what was done to it and where.

    `bytes` counts the storages of parameters and buffers, shared ones once. `inputs` reads like
    "int64[batch, 64]"; `passes` maps the applied passes to their evidence.
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

    def add_fusion(self, fusion: FusionMetadata) -> OptimizationMetadata:
        """The same with one more fusion.

        Raises:
            ValueError: a fusion of that name is there already.
        """
        if any(one.name == fusion.name for one in self.fusions):
            raise ValueError(f"fusion {fusion.name!r} is already recorded")
        return dataclasses.replace(self, fusions=(*self.fusions, fusion))

    def to_dict(self) -> dict[str, Any]:
        """As JSON knows it, with the schema's number."""
        return {"schema": SCHEMA} | _plain(self)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> OptimizationMetadata:
        """The inverse of `to_dict`.

        Raises:
            ValueError: an unknown key, or another schema.
        """
        facts = dict(facts)
        schema = facts.pop("schema", None)
        if schema != SCHEMA:
            raise ValueError(f"metadata of schema {schema}; this library reads schema {SCHEMA}")
        known = _known(cls, facts)
        for name in ("dtypes", "inputs"):
            known[name] = tuple(known.get(name, ()))
        known["fusions"] = tuple(_fusion(one) for one in known.get("fusions", ()))
        known["hardware"] = HardwareMetadata.from_dict(known.get("hardware", {}))
        return cls(**known)

    def to_json(self) -> str:
        """One line; equal metadata give equal lines."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> OptimizationMetadata:
        """The inverse of `to_json`."""
        return cls.from_dict(json.loads(text))

    def save(self, path: str | Path) -> None:
        """Write it as a file of its own."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n", "utf-8")

    @classmethod
    def load(cls, path: str | Path) -> OptimizationMetadata:
        """Read what `save` wrote."""
        return cls.from_json(Path(path).read_text("utf-8"))

    def summary(self) -> str:
        """A few lines for a person."""
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
    """Count, measure and look: nothing is claimed that the model does not show.

    `dynamic` names the axes that move, as in `Plan.of`; `prepared` tells of the passes applied.
    """
    tensors = [*model.parameters(), *model.buffers()]
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}
    axes = dynamic or ({},) * len(sample_inputs)
    applied = [result for result in prepared.passes if result.applied] if prepared else []
    return OptimizationMetadata(
        model=type(model).__name__,
        format=file_format,
        parameters=sum(one.numel() for one in model.parameters()),
        bytes=sum(storages.values()),
        dtypes=tuple(sorted({_dtype(one) for one in tensors})),
        inputs=tuple(_spec(one, names) for one, names in zip(sample_inputs, axes, strict=True)),
        level=prepared.level if prepared else "",
        passes={result.name: result.evidence for result in applied},
        fusions=_fusions(model),
        hardware=HardwareMetadata.of(hardware or probe()),
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


def _plain(value: Any) -> Any:
    """Dataclasses and tuples as dictionaries and lists."""
    return json.loads(json.dumps(dataclasses.asdict(value)))


def _known(kind: type, facts: Mapping[str, Any]) -> dict[str, Any]:
    unknown = set(facts) - {one.name for one in dataclasses.fields(kind)}
    if unknown:
        raise ValueError(f"{kind.__name__} knows no {', '.join(sorted(unknown))}")
    return dict(facts)


def _fusion(facts: Mapping[str, Any]) -> FusionMetadata:
    known = _known(FusionMetadata, facts)
    modules = tuple(known.get("modules", ()))
    return FusionMetadata(known["name"], tuple(known["operations"]), modules)
