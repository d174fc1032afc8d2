"""From what a server answered to what is to be done."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from orchestrator.adapters.notify.guarded_http import Answer
from orchestrator.domain.announcement import one_line
from orchestrator.domain.channel import DeliveryAnswer, DeliveryResult

_SAID_LIMIT = 200
_GONE = 410


def delivery_answer(
    answer: Answer, *, now: datetime, refused: frozenset[int] = frozenset()
) -> DeliveryAnswer:
    """What an answer means; those of the statuses `refused` would be answered so again."""
    status = answer.status
    excerpt = one_line(answer.body.decode("utf-8", "replace"), _SAID_LIMIT)
    said = f"HTTP {status}" + (f": {excerpt}" if excerpt else "")
    if 200 <= status < 300:
        return DeliveryAnswer(reception=DeliveryResult.TAKEN, said=f"HTTP {status}", status=status)
    if status == _GONE:
        return DeliveryAnswer(reception=DeliveryResult.GONE, said=said, status=status)
    if status in refused:
        return DeliveryAnswer(reception=DeliveryResult.REFUSED, said=said, status=status)
    if 300 <= status < 400:
        said = f"HTTP {status}: redirects are not followed; change the channel's URL"
    return DeliveryAnswer(
        reception=DeliveryResult.FAILED,
        said=said,
        status=status,
        retry_after_s=_retry_after_s(answer, now),
    )


def _retry_after_s(answer: Answer, now: datetime) -> float | None:
    """How long the server wants to be left alone."""
    wish = answer.headers.get("retry-after", "").strip()
    if wish.isdecimal():
        return float(wish[:9])
    if answer.headers.get("x-ratelimit-remaining") == "0":
        reset = answer.headers.get("x-ratelimit-reset", "")
        return max(0.0, float(reset[:12]) - now.timestamp()) if reset.isdecimal() else None
    try:
        at = parsedate_to_datetime(wish)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds())
