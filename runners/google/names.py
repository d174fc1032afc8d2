"""Names, labels and locations, as Google Cloud writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

from orchestrator.domain.document_problems import Path, nearest
from orchestrator.domain.machine import PlatformError
from orchestrator.domain.matrix import Platform

NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
PREFIX = "seatrial-"
DEFAULT_USER = "ubuntu"
"""Login user of the images of Google Cloud."""
REGIONS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("africa-south1", "asia-east1", "asia-east2", "asia-northeast1", "asia-northeast2"),
            *("asia-northeast3", "asia-south1", "asia-south2", "asia-southeast1"),
            *("asia-southeast2", "australia-southeast1", "australia-southeast2"),
            *("europe-central2", "europe-north1", "europe-north2", "europe-southwest1"),
            *("europe-west2", "europe-west3", "europe-west4", "europe-west6", "europe-west8"),
            *("europe-west9", "europe-west10", "europe-west12", "me-central1", "me-central2"),
            *("me-west1", "northamerica-northeast1", "northamerica-northeast2"),
            *("northamerica-south1", "southamerica-east1", "southamerica-west1", "us-east4"),
            *("us-east5", "us-south1", "us-west1", "us-west2", "us-west3", "us-west4"),
        ),
        "abc",
    ),
    "europe-west1": "bcd",
    "us-central1": "abcf",
    "us-central2": "b",
    "us-east1": "bcd",
}
"""The letters of each region's zones: cloud.google.com/compute/docs/regions-zones, and the zone
that has TPUs only; of 2026-11."""
_OWN_LABEL = re.compile(r"(?P<key>[a-z][-_a-z0-9]{0,62})=(?P<value>[-_a-z0-9]{0,63})")
_LABEL = re.compile(r"[-_a-z0-9]{0,63}")
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")


def named(word: str) -> str:
    """Return ``seatrial-<word>`` if it is valid, else a valid and unambiguous name."""
    plain = f"{PREFIX}{word}"
    if NAME.fullmatch(plain):
        return plain
    slug = re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")[:32]
    digest = sha256(word.encode()).hexdigest()[:16]
    return "-".join(part for part in ("seatrial", slug, digest) if part)


def label(value: str) -> str:
    """Return a label's value: the value itself, or a digest if labels cannot have it."""
    return value if _LABEL.fullmatch(value) else sha256(value.encode()).hexdigest()[:32]


def labels(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags as labels; their keys must be valid label keys."""
    return {key: label(value) for key, value in tags.items()}


def own_labels(platform: Platform) -> dict[str, str]:
    """Return the user's own labels from ``options: {labels: "cost-center=42, a=b"}``.

    Raises PlatformError for an invalid label, or one of Seatrial's.
    """
    found = {}
    for text in (platform.options or {}).get("labels", "").split(","):
        parts = _OWN_LABEL.fullmatch(text.strip())
        if text.strip() and (parts is None or parts["key"].startswith(PREFIX)):
            raise PlatformError(
                ("options", "labels"),
                f"{text.strip()!r} is no label of yours: key=value, key=value, in lower case",
            )
        if parts is not None:
            found[parts["key"]] = parts["value"]
    return found


def tags(values: Mapping[str, str]) -> dict[str, str]:
    """Return Seatrial's labels of a resource."""
    return {key: value for key, value in values.items() if key.startswith(PREFIX)}


def is_zone(location: str) -> bool:
    """Return whether a location has the form of a zone, ``us-central1-a``."""
    return _ZONE.fullmatch(location) is not None


def known_location(text: str, path: Path) -> str:
    """Return the zone or region unchanged. Raises PlatformError if Google Cloud lacks it."""
    region = region_of(text) if is_zone(text) else text
    zones = tuple(f"{region}-{letter}" for letter in REGIONS.get(region, ""))
    if not zones:
        hint = nearest(region, REGIONS)
        raise PlatformError(
            path,
            f"{text!r} is neither a region (us-central1) nor a zone (us-central1-a) of "
            f"Google Cloud{hint}",
        )
    if is_zone(text) and text not in zones:
        raise PlatformError(path, f"{region} has no zone {text!r}; it has {', '.join(zones)}")
    return text


def region_of(zone: str) -> str:
    """Return the region that a zone is in."""
    return zone.rpartition("-")[0]
