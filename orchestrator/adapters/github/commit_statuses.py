"""A gate's state as the status of a commit."""

from __future__ import annotations

import json
from collections.abc import Mapping

from orchestrator.adapters.notify.guarded_http import Request
from orchestrator.adapters.notify.messages import web_link
from orchestrator.domain.announcement import Announcement, one_line
from orchestrator.domain.channel import Channel, Delivery, commit_of, status_word

GITHUB_REFUSES = frozenset({422})
"""No such commit, or a thousand statuses of one name already: the same would be said again."""
_DESCRIPTION_LIMIT = 140
_NAME_LIMIT = 100
_LARGEST = "\uffff"
"""GitHub refuses what lies above."""


class TokenMissingError(Exception):
    """The controller does not find the token where the channel says."""


def status_request(
    channel: Channel, delivery: Delivery, *, token: str, headers: Mapping[str, str]
) -> Request:
    """The request that sets the status; of a test without a commit, one that only looks."""
    asked = {
        **headers,
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {token}",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    told = delivery.news.announcement
    repository = f"{channel.api_base.rstrip('/')}/repos/{channel.target}"
    sha = commit_of(told)
    if sha is None:
        return Request("GET", repository, asked)
    body = {
        "state": status_word(told),
        "context": f"seatrial/{_plain(told.facts.get('gate') or told.lineage, _NAME_LIMIT)}",
        "description": _plain(_description(told), _DESCRIPTION_LIMIT),
    }
    link = web_link(told.url)
    if link:
        body["target_url"] = link
    asked["Content-Type"] = "application/json"
    return Request("POST", f"{repository}/statuses/{sha}", asked, json.dumps(body).encode())


def _description(told: Announcement) -> str:
    said = told.text or told.title
    return f"{told.state.words}: {said}" if said else told.state.words


def _plain(text: str, limit: int) -> str:
    return "".join(c if c <= _LARGEST else "?" for c in one_line(text, limit))
