"""Selects the boot image: the first available one of an ordered list."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from google.cloud import compute_v1

from orchestrator.domain.machine import ConfigError, Extent
from runners.gcp.clients import ComputeClients
from runners.gcp.platform_config import texts
from runners.google.responses import READ_TIMEOUT_S, NotThereError, read
from runners.ttl_cache import TtlCache

DEFAULT_PROJECT = "deeplearning-platform-release"
DEFAULT_FAMILIES = (
    "pytorch-2-9-cu129-ubuntu-2404-nvidia-580",
    "pytorch-2-9-cu129-ubuntu-2204-nvidia-580",
    "pytorch-2-7-cu128-ubuntu-2204-nvidia-570",
)
"""Image families with NVIDIA's driver and torch; the first that is not deprecated is used.

Families of driver 570 are deprecated since 2026-04-13. Families without torch (``common-*``) are
left out.
"""
_DRIVER_INSIDE = re.compile(r"-nvidia-\d+")
_UNUSABLE = frozenset({"OBSOLETE", "DELETED"})


@dataclass(frozen=True, slots=True)
class ResolvedImage:
    """The image that a family or name stood for when it was looked up."""

    link: str
    name: str
    id: str
    created: str
    disk_gb: int
    deprecated: str
    """Empty, ``DEPRECATED``, ``OBSOLETE`` or ``DELETED``."""
    needs_driver: bool

    @property
    def facts(self) -> Mapping[str, str]:
        """The image's facts, as machines record them."""
        return {"image_id": self.id, "image_name": self.name, "image_created": self.created}


class GcpImages:
    """Finds boot images, and caches the answers."""

    def __init__(self, clients: ComputeClients, now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._cache: TtlCache[ResolvedImage] = TtlCache(now, serve_stale=False)

    def resolve(self, values: Mapping[str, str | tuple[str, ...]]) -> ResolvedImage:
        """Return the first usable boot image of a platform's `image`.

        It lists families and names; without any, default families are used. A deprecated image is
        returned only if all others are unusable. Raises ConfigError if no image is usable.
        """
        project = "".join(texts(values.get("project"))) or DEFAULT_PROJECT
        names, families = texts(values.get("name")), texts(values.get("family"))
        if not names and not families:
            families = DEFAULT_FAMILIES
        key = f"{project} {names} {families}"
        return self._cache.get(key, lambda: self._first(project, names, families))

    def _first(
        self, project: str, names: tuple[str, ...], families: tuple[str, ...]
    ) -> ResolvedImage:
        tried: list[str] = []
        aged: list[ResolvedImage] = []
        for what, found in self._candidates(project, names, families):
            if found is not None and not found.deprecated:
                return found
            if found is not None and found.deprecated not in _UNUSABLE:
                aged.append(found)
            tried.append(f"{what} ({found.deprecated.lower() if found else 'not found'})")
        if aged:  # still usable, and nothing newer is listed
            return aged[0]
        raise ConfigError(
            f"image: none of these can be had from project {project}: {'; '.join(tried)}; name "
            "one that exists by `image: {family: [...], project: ...}`",
            extent=Extent.PROJECT,
        )

    def _candidates(
        self, project: str, names: tuple[str, ...], families: tuple[str, ...]
    ) -> Iterable[tuple[str, ResolvedImage | None]]:
        for family in families:
            yield f"family {family}", self._of_family(project, family)
        for name in names:
            yield f"name {name}", self._of_name(project, name)

    def _of_family(self, project: str, family: str) -> ResolvedImage | None:
        try:
            found = read(
                f"looking up image family {family} of {project}",
                lambda: self._clients.images.get_from_family(
                    project=project, family=family, retry=None, timeout=READ_TIMEOUT_S
                ),
            )
        except NotThereError:
            return None
        return _image(found, project)

    def _of_name(self, project: str, name: str) -> ResolvedImage | None:
        """Return the newest image with this name, or with a name that matches this pattern."""
        is_pattern = any(sign in name for sign in "*?")
        try:
            found = read(
                f"looking up image {name} of {project}",
                lambda: self._like(project, name) if is_pattern else self._exactly(project, name),
            )
        except NotThereError:
            return None
        images = [_image(each, project) for each in found if fnmatchcase(each.name, name)]
        usable = [each for each in images if each.deprecated not in _UNUSABLE]
        return max(usable, key=lambda each: (not each.deprecated, each.created), default=None)

    def _exactly(self, project: str, name: str) -> list[compute_v1.Image]:
        return [
            self._clients.images.get(
                project=project, image=name, retry=None, timeout=READ_TIMEOUT_S
            )
        ]

    def _like(self, project: str, name: str) -> list[compute_v1.Image]:
        pattern = re.escape(name).replace(r"\*", ".*").replace(r"\?", ".")
        request = compute_v1.ListImagesRequest(project=project, filter=f"name eq '{pattern}'")
        return list(self._clients.images.list(request, retry=None, timeout=READ_TIMEOUT_S))


def _image(image: compute_v1.Image, project: str) -> ResolvedImage:
    # Images of the deep learning project name their driver; one without a driver installs it at
    # its first boot if its metadata requests that.
    is_learning = project == DEFAULT_PROJECT
    return ResolvedImage(
        link=image.self_link or f"projects/{project}/global/images/{image.name}",
        name=image.name,
        id=str(image.id) if image.id else image.name,
        created=image.creation_timestamp,
        disk_gb=int(image.disk_size_gb),
        deprecated=image.deprecated.state,
        needs_driver=is_learning and not _DRIVER_INSIDE.search(f"{image.family} {image.name}"),
    )
