"""The groups of settings that concern no particular vendor."""

from __future__ import annotations

from dataclasses import dataclass

from torchbridge.config.enums import AttentionPatterns, PrecisionFormat, ValidationLevel
from torchbridge.config.settings import Settings

COMPILE_MODES = ("default", "reduce-overhead", "max-autotune")
# what a device of a type talks to its like by
COLLECTIVES = {"cuda": "nccl", "xpu": "xccl", "xla": "xla", "cpu": "gloo"}
WINDOWED = (AttentionPatterns.SLIDING_WINDOW, AttentionPatterns.LOCAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionConfig(Settings):
    """What models are stored and computed in. `mixed_precision`: fp32 weights, 16-bit products."""

    default_format: PrecisionFormat = PrecisionFormat.FP32
    mixed_precision: bool = False
    allow_tf32: bool = False

    def check(self) -> None:
        """Mixed precision is about fp32 weights."""
        whole = not self.mixed_precision or self.default_format is PrecisionFormat.FP32
        self.require(whole, "default_format must be fp32 with mixed_precision", self.default_format)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig(Settings):
    """What may be computed again, or kept on the host; an estimate counts `safety_margin` times."""

    gradient_checkpointing: bool = False
    deep_optimizer_states: bool = False  # kept on the host between steps
    safety_margin: float = 1.2

    def check(self) -> None:
        """An estimate is never made smaller."""
        good = self.safety_margin >= 1
        self.require(good, "safety_margin must be at least 1", self.safety_margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig(Settings):
    """`window_size`: a query sees the keys less than this far away; 1 is the query itself."""

    pattern: AttentionPatterns = AttentionPatterns.FULL
    window_size: int | None = None
    dropout: float = 0.0

    def check(self) -> None:
        """A window is given exactly where the pattern has one."""
        window, windowed = self.window_size, self.pattern in WINDOWED
        self.require(0 <= self.dropout < 1, "dropout must be in [0, 1)", self.dropout)
        self.require(
            not windowed or window is not None, f"{self.pattern.value} needs a window_size", window
        )
        self.require(windowed or window is None, f"{self.pattern.value} has no window_size", window)
        self.require(window is None or window >= 1, "window_size must be at least 1", window)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedConfig(Settings):
    """One process among `world_size`; `backend` None: the device's own collectives.

    They meet by torch.distributed's `init_method`: MASTER_ADDR and MASTER_PORT, or a file's URL.
    """

    world_size: int = 1
    rank: int = 0
    backend: str | None = None
    init_method: str = "env://"

    def check(self) -> None:
        """Ranges and the collectives that torch knows."""
        self.require(self.world_size >= 1, "world_size must be at least 1", self.world_size)
        inside = 0 <= self.rank < self.world_size
        self.require(inside, f"rank must be in 0..{self.world_size - 1}", self.rank)
        names = COLLECTIVES.values()
        known = self.backend is None or self.backend in names
        self.require(known, f"backend must be one of {', '.join(names)}", self.backend)

    def collectives(self, device_type: str) -> str:
        """As asked for, else those of the type of device ("cuda", say); gloo for others."""
        return self.backend or COLLECTIVES.get(device_type, "gloo")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationConfig(Settings):
    """Whether models are checked after their preparation, and how much."""

    enabled: bool = True
    level: ValidationLevel = ValidationLevel.STANDARD


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConfig(Settings):
    """What may be done to a model's operations: folded and fused ones, torch.compile."""

    fusion: bool = True
    compile: bool = True
    compile_mode: str = "default"

    def check(self) -> None:
        """The modes that torch.compile knows."""
        known = self.compile_mode in COMPILE_MODES
        rule = f"compile_mode must be one of {', '.join(COMPILE_MODES)}"
        self.require(known, rule, self.compile_mode)
