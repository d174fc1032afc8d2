"""Messages by HTTP."""

from __future__ import annotations


class HttpCourier:
    """Implements the Courier."""
