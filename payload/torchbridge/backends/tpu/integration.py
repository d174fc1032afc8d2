"""XLA's devices, several processes, and its own settings, each behind one small class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchbridge.backends.tpu.exceptions import (
    TPUConfigurationError,
    TPUDistributedError,
    TPUNotFound,
)
from torchbridge.backends.tpu.xla import XLA
from torchbridge.config import TPUConfig
from torchbridge.passes import PassResult

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
            TPUNotFound: it is something else.
        """
        if not self.xla.is_tpu:
            raise TPUNotFound(
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
            TPUDistributedError: there are none: no backward pass came before.
        """
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        if not gradients:
            raise TPUDistributedError("no gradients to average: call backward first")
        for gradient in gradients:
            gradient.copy_(self.mean(gradient))
        return len(gradients)

    def shard(self, batch: Tensor) -> Tensor:
        """This process's rows of a batch [N, ...].

        Raises:
            TPUDistributedError: N is not a multiple of the number of processes.
        """
        if len(batch) % self.world_size:
            raise TPUDistributedError(
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
        TPUConfigurationError: the settings say that there is no TPU (`enabled` is False).
    """
    if config.enabled is False:
        raise TPUConfigurationError("enabled is False: the settings keep this job off the TPU")
    return XLADeviceManager(xla), XLADistributedTraining(xla), XLAOptimizations(config, xla)
