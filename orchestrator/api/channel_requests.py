"""What clients send about channels, with an example of each."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.models import RequestModel
from orchestrator.application.manage_channels import NewChannel
from orchestrator.domain.channel import GITHUB_API, ChannelKind

_PLAIN = r"^[^\x00-\x1f\x7f]*$"
_Pattern = Annotated[str, Field(min_length=1, max_length=200, pattern=_PLAIN)]
_Short = Annotated[str, Field(max_length=200, pattern=_PLAIN)]
_Url = Annotated[str, Field(min_length=1, max_length=2000, pattern=_PLAIN)]


class WebhookRequest(RequestModel):
    """A channel to add."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    kind: ChannelKind = ChannelKind.WEBHOOK
    target: _Url
    """An URL; of ``github``, ``owner/repository``."""
    lineages: Annotated[tuple[_Pattern, ...], Field(max_length=50)] = ()
    """Only these lines of verdicts; ``*`` and ``?`` stand for anything. Empty takes all."""
    allow_private: bool = False
    """For receivers in one's own network: private addresses and plain HTTP are allowed."""
    api_base: _Url = GITHUB_API
    """For a GitHub of one's own: ``https://github.example.org/api/v3``."""
    token_from: _Short = ""
    """Where the controller finds GitHub's token: ``env:GITHUB_TOKEN``, or ``file:NAME`` of a file
    under its ``HOME/keys``."""

    def new_channel(self) -> NewChannel:
        """As the operation takes it."""
        return NewChannel(**dict(self))


class TryRequest(RequestModel):
    """How to test a channel."""

    git_sha: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})?$")] = ""
    """Of ``github``: set the status ``seatrial/test`` there; without it, the repository is only
    looked at."""


class RotateRequest(RequestModel):
    """How to renew a secret."""

    overlap_hours: Annotated[float, Field(ge=0, le=720)] = 24
    """For so long messages are signed with the old secret too."""


_NEW: dict[str, Example] = {
    "webhook": {
        "summary": "Signed JSON",
        "value": {"name": "release-bot", "target": "https://hooks.example.org/seatrial"},
    },
    "slack": {
        "summary": "A room, told of the nightly only",
        "value": {
            "name": "release-room",
            "kind": "slack",
            "target": "https://hooks.slack.com/services/T000/B000/XXXX",
            "lineages": ["nightly*"],
        },
    },
    "github": {
        "summary": "Statuses of commits",
        "value": {
            "name": "commits",
            "kind": "github",
            "target": "example/torchbridge",
            "token_from": "env:GITHUB_TOKEN",
        },
    },
}
_TRY: dict[str, Example] = {
    "commit": {
        "summary": "A real status, on a commit of GitHub",
        "value": {"git_sha": "0123456789abcdef0123456789abcdef01234567"},
    }
}
_ROTATE: dict[str, Example] = {
    "week": {"summary": "The old one stands for a week", "value": {"overlap_hours": 168}}
}

NewWebhook = Annotated[WebhookRequest, Body(openapi_examples=_NEW)]
Try = Annotated[TryRequest | None, Body(openapi_examples=_TRY)]
Rotate = Annotated[RotateRequest | None, Body(openapi_examples=_ROTATE)]
