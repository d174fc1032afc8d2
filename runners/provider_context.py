"""The constructor argument of every provider, and the wording of cloud messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from orchestrator.domain.machine import (
    Extent,
    NotOfferedError,
    ProviderError,
    ProviderUnavailableError,
    StaticHosts,
)

if TYPE_CHECKING:
    from orchestrator.domain.prices import PriceBook

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProviderContext:
    """The only constructor argument of every provider."""

    book: StaticHosts
    """Stores the machines of a provider that has no cloud to list them."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """``project, ingress_cidr, gcp_project`` and the endpoints that the settings override."""
    prices: PriceBook | None = None
    """Prices refreshed since the shipped tables; None for none."""
    now: Callable[[], datetime] = lambda: datetime.fromtimestamp(0, UTC)
    """The clock."""
    templates: Path = Path("templates")
    """The folder with ``cloud_init/``."""


def after_checks(call: Callable[[], T], *checks: Callable[[], object]) -> T:
    """Return the call's result; run every check as well, to report all failures together.

    Raises:
        NotOfferedError: From the call: no other failure matters.
        ProviderError: The only failure. For several failures: all sentences, with the class and
            code of the first failure that repeating the call would not end.
    """
    refused: dict[str, ProviderError] = {}
    result: list[T] = []
    for one in (lambda: result.append(call()), *checks):
        try:
            one()
        except NotOfferedError:
            raise
        except ProviderError as error:
            refused.setdefault(str(error), error)
    lasting = (one for one in refused.values() if not isinstance(one, ProviderUnavailableError))
    first = next(lasting, next(iter(refused.values()), None))
    if first is None:
        return result[0]
    if len(refused) == 1:
        raise first
    raise type(first)("; ".join(refused), code=first.code, extent=Extent.PROJECT) from first


LIMIT = 600
"""Maximum characters of a cloud's message."""
_PAGE = re.compile(r"<!doctype html|<html\b", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


def plain_words(message: str) -> str:
    """Return the text on one line, limited in length; for a web page, only its title."""
    words = " ".join(message.split())
    page = _PAGE.search(words)
    if page is not None:
        title = _TITLE.search(words)
        named = f" titled {' '.join(title[1].split())!r}" if title else ""
        before = words[: page.start()].rstrip(" b'\":")
        told = f"a web page{named} instead of an answer"
        words = f"{before}: {told}" if before else told
    return words if len(words) <= LIMIT else f"{words[:LIMIT]}..."
