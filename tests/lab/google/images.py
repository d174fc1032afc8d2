"""The public images that the lab's Compute Engine knows."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.lab.google.front import ApiError, Json

DLVM_PROJECT = "deeplearning-platform-release"
_ROOT = "https://www.googleapis.com/compute/v1/"


@dataclass(slots=True)
class Image:
    """One image; `state` is "" or what GCE calls its deprecation."""

    project: str
    name: str
    family: str
    size_gb: int = 50
    made_at: str = "2026-06-26T00:00:00.000-07:00"
    state: str = ""

    @property
    def link(self) -> str:
        return f"projects/{self.project}/global/images/{self.name}"

    def as_json(self) -> Json:
        number = sum(self.name.encode()) * 7_919
        body: Json = {
            "kind": "compute#image", "id": str(number), "name": self.name, "family": self.family,
            "selfLink": _ROOT + self.link, "creationTimestamp": self.made_at, "status": "READY",
            "diskSizeGb": str(self.size_gb), "architecture": "X86_64", "sourceType": "RAW",
        }  # fmt: skip
        return body | ({"deprecated": {"state": self.state}} if self.state else {})


def _public() -> list[Image]:
    families = (
        "pytorch-2-9-cu129-ubuntu-2404-nvidia-580",
        "pytorch-2-9-cu129-ubuntu-2204-nvidia-580",
        "common-cu129-ubuntu-2404-nvidia-580",
        "pytorch-2-7-cu128-ubuntu-2204-nvidia-570",
        "common-cu128-ubuntu-2204-nvidia-570",
    )
    images = [
        Image(
            DLVM_PROJECT,
            f"{family}-v20260626",
            family,
            # Google's notice of 2026-04-13; an image that is deprecated can still be booted.
            state="DEPRECATED" if family.endswith("-570") else "",
        )
        for family in families
    ]
    ubuntu = "ubuntu-2404-noble-amd64-v20261105"
    return [*images, Image("ubuntu-os-cloud", ubuntu, "ubuntu-2404-lts-amd64", 10)]


@dataclass(slots=True)
class Images:
    """All of them; a later one of a family is found first."""

    known: list[Image] = field(default_factory=_public)

    def add(self, image: Image) -> None:
        """One more; the newest of its family."""
        self.known.insert(0, image)

    def deprecate(self, family: str, state: str = "DEPRECATED") -> None:
        """DEPRECATED is still answered and says so; OBSOLETE and DELETED are not found."""
        for image in self.known:
            if image.family == family:
                image.state = state

    def withdraw(self, family: str) -> None:
        """No image of the family is left."""
        self.known = [image for image in self.known if image.family != family]

    def of_family(self, project: str, family: str) -> Image:
        """The newest usable one."""
        for image in self.known:
            usable = image.state in ("", "DEPRECATED")
            if (image.project, image.family) == (project, family) and usable:
                return image
        what = f"projects/{project}/global/images/family/{family}"
        raise ApiError("notFound", f"The resource '{what}' was not found", 404)

    def get(self, project: str, name: str) -> Image:
        """The exact one, usable or refused."""
        for image in self.known:
            if (image.project, image.name) == (project, name) and image.state != "DELETED":
                return image
        what = f"projects/{project}/global/images/{name}"
        raise ApiError("notFound", f"The resource '{what}' was not found", 404)

    def resolve(self, link: str) -> Image:
        """What a disk's `sourceImage` names, by image or by family, by URL or by path."""
        parts = link.split("/")
        if "projects" not in parts or "images" not in parts:
            raise ApiError("invalid", f"Invalid value for field 'sourceImage': '{link}'.")
        project = parts[parts.index("projects") + 1]
        if parts[-2] == "family":
            return self.of_family(project, parts[-1])
        image = self.get(project, parts[-1])
        if image.state == "OBSOLETE":
            raise ApiError("invalid", f"The image '{image.link}' is obsolete.")
        return image
