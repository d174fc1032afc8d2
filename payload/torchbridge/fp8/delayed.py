"""Delayed scaling: the scale of a tensor from the largest numbers of the steps before."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchbridge.fp8.config import FP8Config
from torchbridge.fp8.formats import FP8Dtype, native_dtype
from torchbridge.fp8.linear import NativeFP8Linear
from torchbridge.fp8.pinned import PinnedDtypes
from torchbridge.fp8.scaling import amax_of, scale_from_amax
from torchbridge.fp8.tensor import FP8QuantizedTensor


class AmaxHistory(PinnedDtypes):
    """The largest numbers of the last `length` steps, newest first; 0 where there was no step.

    `saturated` counts the numbers that were beyond the format, for lack of foresight.
    """

    pinned = ("amax", "scale")

    def __init__(
        self, fmt: FP8Dtype, config: FP8Config, device: torch.device | None = None
    ) -> None:
        super().__init__()
        self.format, self.margin = fmt, config.margin
        self.newest_only = config.amax_compute_algo == "most_recent"
        self.register_buffer("amax", torch.zeros(config.amax_history_len, device=device))
        self.register_buffer("scale", torch.ones((), device=device))
        self.register_buffer("saturated", torch.zeros((), dtype=torch.int64, device=device))

    @torch.no_grad()
    def quantize(self, x: Tensor, record: bool) -> FP8QuantizedTensor:
        """By the scale that the steps before give; x's own largest number counts from the next.

        The very first tensor is its own history. Without `record` nothing is remembered.
        """
        limit = torch.finfo(native_dtype(self.format, x.device)).max
        current = amax_of(x)
        past = self.amax[0] if self.newest_only else self.amax.amax()
        scale = scale_from_amax(torch.where(past > 0, past, current), limit, self.margin)
        quantised = FP8QuantizedTensor.from_tensor(x, self.format, scale=scale)
        if record:
            self.scale.copy_(scale)
            beyond = limit * (1 + 2.0**-20)  # that much is float32's rounding
            self.saturated += (x.abs().float() * scale > beyond).sum()
            self.amax.copy_(self.amax.roll(1))
            self.amax[0] = current.where(current.isfinite(), 0.0)  # an overflow is no history
        return quantised


def histories(config: FP8Config, device: torch.device | None = None) -> nn.ModuleDict:
    """Empty histories by role; none with dynamic scaling."""
    if config.scaling == "dynamic":
        return nn.ModuleDict()
    formats = {
        "input": config.forward_format,
        "weight": config.forward_format,
        "gradient": config.backward_format,
    }
    return nn.ModuleDict({role: AmaxHistory(fmt, config, device) for role, fmt in formats.items()})


class FP8LinearLayer(NativeFP8Linear):
    """NativeFP8Linear by an FP8Config, with delayed scaling if that says so; x [..., in].

    In eval mode the histories are used and not changed. Delayed scaling is not traced whole by
    torch.compile: the gradient's history changes in backward.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        config: FP8Config | None = None,
        *,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        config = config or FP8Config()
        super().__init__(
            in_features,
            out_features,
            bias,
            forward_format=config.forward_format,
            backward_format=config.backward_format,
            granularity=config.granularity,
            path=config.path,
            fast_accum=config.fast_accum,
            device=device,
            dtype=dtype,
        )
        self.config = config
        self.histories = histories(config, device)

    def quantize(self, role: str, matrix: Tensor) -> FP8QuantizedTensor:
        """`matrix`, of role input, weight or gradient, by its history where there is one."""
        if role in self.histories:
            return self.histories[role].quantize(matrix, record=self.training)
        return super().quantize(role, matrix)

    def _state(self) -> object:
        """A history says the weight's scale, whatever the weight is: nothing is kept."""
        return None if self.histories else super()._state()

    def get_scales(self) -> dict[str, float]:
        """The scales that were used last, by role; empty with dynamic scaling."""
        return {role: one.scale.item() for role, one in self.histories.items()}

    def saturated(self) -> int:
        """Numbers that delayed scales could not hold, so far."""
        return sum(int(one.saturated) for one in self.histories.values())
