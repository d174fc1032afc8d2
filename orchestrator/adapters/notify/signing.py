"""Standard Webhooks: the headers that prove who sent a body, and when."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from standardwebhooks.webhooks import Webhook

PREFIX = "whsec_"
_SECRET_BYTES = 32


def new_secret() -> str:
    """Make a secret to sign with."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode("ascii")


def signed_headers(
    message_id: str, body: str, *, keys: Sequence[str], now: datetime
) -> dict[str, str]:
    """A signature by every secret, so that a receiver that knows one of them is content."""
    at = now.astimezone(UTC)  # the library takes the wall time of any zone for UTC's
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Webhook(key).sign(message_id, at, body) for key in keys),
    }
