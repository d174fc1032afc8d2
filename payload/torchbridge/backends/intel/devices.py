"""Which XPUs there are. torch.xpu is torch's own; Intel's extension (IPEX) is only looked for."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import warnings
from dataclasses import dataclass

import torch

from torchbridge.backends.intel.exceptions import (
    IPEXNotInstalledError,
    OneDNNError,
    XPUDeviceError,
    XPUNotAvailableError,
)
from torchbridge.config import IntelArchitecture
from torchbridge.hardware import Hardware, probe

_IPEX = "intel_extension_for_pytorch"
# Those with XMX units multiply both 16-bit formats; the integrated ones meant here have none
_FEATURES = {
    "pvc": {"fp16", "bf16", "matrix_cores"},
    "ats": {"fp16", "bf16", "matrix_cores"},
    "flex": {"fp16", "bf16", "matrix_cores"},
    "dg2": {"fp16", "bf16", "matrix_cores"},
    "integrated": {"fp16"},
}


def is_xpu_available() -> bool:
    """Does torch see an XPU?"""
    return torch.xpu.is_available()


def is_ipex_available() -> bool:
    """Is Intel's extension installed? It is archived, and nothing here needs it."""
    return importlib.util.find_spec(_IPEX) is not None


def get_ipex_version() -> str | None:
    """Of the installed extension."""
    return importlib.metadata.version(_IPEX) if is_ipex_available() else None


def require_xpu() -> torch.device:
    """The first XPU.

    Raises:
        XPUNotAvailableError: what is missing.
    """
    if not is_xpu_available():
        built = "sees no XPU" if getattr(torch.version, "xpu", None) else "is not built for XPUs"
        raise XPUNotAvailableError(f"torch {torch.__version__} {built}")
    return torch.device("xpu", 0)


def require_ipex() -> str:
    """The installed extension's version.

    Raises:
        IPEXNotInstalledError: it is not there.
    """
    version = get_ipex_version()
    if version is None:
        raise IPEXNotInstalledError(f"{_IPEX} is not installed; torch.xpu does without it")
    return version


def require_onednn() -> None:
    """Refuse a torch whose products are not oneDNN's.

    Raises:
        OneDNNError: it is built without.
    """
    if not torch.backends.mkldnn.is_available():
        raise OneDNNError(f"torch {torch.__version__} is built without oneDNN")


def intel_hardware(architecture: IntelArchitecture, **facts: float) -> Hardware:
    """A GPU of an architecture, to try rules with; facts are further fields of `Hardware`."""
    name = architecture.value
    told = {"target": "xpu", "features": frozenset(_FEATURES.get(name, set()))}
    return Hardware("intel", f"Intel {name}", name, **told, **facts)


@dataclass(frozen=True, slots=True)
class XPUDeviceInfo:
    """One device, as torch tells."""

    index: int
    name: str
    memory_bytes: int
    units: int
    features: frozenset[str]

    @classmethod
    def of(cls, hardware: Hardware, index: int) -> XPUDeviceInfo:
        """What matters of a device's hardware."""
        found = hardware
        return cls(index, found.name, found.memory_bytes, found.units, found.features)


class XPUDeviceManager:
    """The XPUs of this machine; none is no error until one is needed."""

    @property
    def device_count(self) -> int:
        """How many."""
        return torch.xpu.device_count()

    def get_device(self, index: int = 0) -> torch.device:
        """An XPU; the CPU, with a warning, where there is none at all.

        Raises:
            XPUDeviceError: there are XPUs, but not so many.
        """
        if not is_xpu_available():
            warnings.warn("no XPU here: the CPU takes its place", stacklevel=2)
            return torch.device("cpu")
        return self._existing(index)

    def device_info(self, index: int = 0) -> XPUDeviceInfo:
        """Of one XPU.

        Raises:
            XPUDeviceError: it is not there.
        """
        return XPUDeviceInfo.of(probe(self._existing(index)), index)

    def _existing(self, index: int) -> torch.device:
        if not 0 <= index < self.device_count:
            raise XPUDeviceError(f"no XPU {index}: there are {self.device_count}")
        return torch.device("xpu", index)
