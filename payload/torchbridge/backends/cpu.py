"""The processor itself: there is always one."""

from __future__ import annotations

from torchbridge.backends.backend import Backend


class CPUBackend(Backend):
    """All shared passes; bfloat16 only where the processor's features say so."""
