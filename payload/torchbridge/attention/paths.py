"""What was computed how: the ways to compute attention, and why one was not taken."""

from __future__ import annotations

from dataclasses import dataclass

PATHS = (
    "auto",  # the fastest exact one
    "sdpa",  # torch's scaled_dot_product_attention, its back-end of choice
    "sdpa_flash",
    "sdpa_efficient",
    "sdpa_cudnn",
    "sdpa_math",
    "flex",  # compiled FlexAttention
    "flex_eager",  # FlexAttention uncompiled: it materialises all scores
    "explicit",  # two matrix products and a softmax: materialises all scores
    "flash_attn",  # the optional packages
)


@dataclass(frozen=True, slots=True)
class Path:
    """A way that was taken.

    `form` is what the pattern became there (`no mask`, `is_causal`, `mask`, `bias`, `block mask`,
    `scores`, for flash_attn the package); `backend` the kernel torch chose for SDPA, None where it
    does not tell; `fallback` why it is not the way that such a call should take; `reason` why that
    back-end is not left to torch (choice.py).
    """

    name: str
    form: str
    backend: str | None = None
    fallback: str | None = None
    reason: str | None = None

    def __str__(self) -> str:
        taken = f"{self.name}[{self.form}]"
        if self.backend is not None:
            taken = f"{self.name}[{self.form}, {self.backend}]"
        return taken if self.fallback is None else f"{taken} ({self.fallback})"


class PathRefused(RuntimeError):
    """A way cannot compute what it was asked for; `reason` says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"path {name!r} cannot be used: {reason}; use 'auto'")
        self.reason = reason
