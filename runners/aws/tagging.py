"""The tags of all of Seatrial's resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from runners.aws.sdk import Answer

PROJECT = "seatrial-project"
TOKEN = "seatrial-token"  # noqa: S105 (a tag's name)
EXPIRES = "seatrial-expires-at"
SHARED = "seatrial-shared"
USER = "seatrial-login"
"""Login user of the machine, stored in a tag because a provider keeps no state."""
CONNECT = "seatrial-connect"
IMAGE_NAME = "seatrial-image-name"
IMAGE_CREATED = "seatrial-image-created"
PREFIX = "seatrial-"
_OURS_ALONE = frozenset({USER, CONNECT, IMAGE_NAME, IMAGE_CREATED})
VALUE_LIMIT = 256


def specification(tags: Mapping[str, str], *kinds: str) -> list[Answer]:
    """Return the tags in EC2's format, for each kind of resource that a call creates."""
    listed = [{"Key": key, "Value": tags[key][:VALUE_LIMIT]} for key in sorted(tags)]
    return [{"ResourceType": kind, "Tags": listed} for kind in kinds]


def filters(project: str) -> list[Answer]:
    """Return the filters that find the project's resources."""
    return [{"Name": f"tag:{PROJECT}", "Values": [project]}]


def read(listed: Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    """Return Seatrial's tags of a resource."""
    found = {tag["Key"]: tag["Value"] for tag in listed or ()}
    return {key: value for key, value in found.items() if key.startswith(PREFIX)}


def given(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that the launch request set."""
    return {key: value for key, value in tags.items() if key not in _OURS_ALONE}
