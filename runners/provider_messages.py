"""Converts a cloud's or a proxy's non-API response to readable text."""

from __future__ import annotations

import re

LIMIT = 600
"""Characters."""
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
