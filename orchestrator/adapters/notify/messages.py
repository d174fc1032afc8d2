"""What a delivery says, as each kind of receiver reads it. Titles and texts are anybody's words."""

from __future__ import annotations

import json

from orchestrator.domain.announcement import TEXT_LIMIT, TITLE_LIMIT, one_line, paragraphs
from orchestrator.domain.channel import Delivery

TYPE = "gate.state_changed"
TEST_TYPE = "test"
_FACT_LIMIT = 500
_URL_LIMIT = 2_000
_MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def webhook_body(delivery: Delivery) -> str:
    """JSON in ASCII, for programs."""
    news = delivery.news
    told = news.announcement
    data = {
        "lineage": told.lineage,
        "state": told.state.value,
        "previous": news.previous.value if news.previous else None,
        "change": news.change,
        "title": one_line(told.title, TITLE_LIMIT),
        "text": paragraphs(told.text, TEXT_LIMIT),
        "url": web_link(told.url),
        "facts": {key: one_line(value, _FACT_LIMIT) for key, value in sorted(told.facts.items())},
    }
    kind = TEST_TYPE if delivery.is_test else TYPE
    return json.dumps({"type": kind, "timestamp": told.at.isoformat(), "data": data})


def slack_body(delivery: Delivery) -> str:
    """JSON for people: plain text in which nobody's name is called and no link is hidden."""
    told = delivery.news.announcement
    lines = (delivery.news.headline, paragraphs(told.text, TEXT_LIMIT), web_link(told.url))
    text = "\n".join(_unmarked(line) for line in lines if line)
    quiet = {"mrkdwn": False, "link_names": False, "unfurl_links": False, "unfurl_media": False}
    return json.dumps({"text": text, **quiet})


def web_link(url: str) -> str:
    """The URL, if it is one that a browser may be sent to."""
    usable = url.startswith(("https://", "http://")) and url.isascii() and url.isprintable()
    return url if usable and " " not in url and len(url) <= _URL_LIMIT else ""


def _unmarked(text: str) -> str:
    return "".join(_MARKUP.get(character, character) for character in text)
