"""Wheel files: their names, tags and requirements."""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag, parse_tag
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import InvalidVersion, Version

from orchestrator.application.ports.wheels import WheelsError

_LARGEST_METADATA_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WheelFile:
    """A wheel on disk, by its metadata instead of its file name."""

    path: Path
    distribution: str
    version: Version
    tags: tuple[Tag, ...]
    requires: tuple[Requirement, ...]

    @property
    def name(self) -> NormalizedName:
        """Canonical."""
        return canonicalize_name(self.distribution)

    @property
    def filename(self) -> str:
        """The file name that installers expect."""
        axes = [
            ".".join(dict.fromkeys(getattr(tag, axis) for tag in self.tags))
            for axis in ("interpreter", "abi", "platform")
        ]
        if parse_tag("-".join(axes)) != frozenset(self.tags):
            # The tags form no grid, so that no single name contains them all.
            axes = str(self.tags[0]).split("-")
        name = re.sub(r"[-_.]+", "_", self.distribution)
        return f"{name}-{self.version}-{'-'.join(axes)}.whl"


def read_wheel(path: Path) -> WheelFile:
    """Read a wheel's metadata. Raises WheelsError if it is no wheel."""
    try:
        with zipfile.ZipFile(path) as archive:
            metadata, wheel = (_headers(archive, name) for name in ("METADATA", "WHEEL"))
            _member(archive, "RECORD")
        tags = [tag for text in wheel.get_all("Tag", []) for tag in parse_tag(str(text).strip())]
        if not tags:
            raise WheelsError(f"{path.name} is no wheel: it names no tag")
        requires = tuple(Requirement(str(text)) for text in metadata.get_all("Requires-Dist", []))
        version = Version(str(metadata["Version"]))
        return WheelFile(path, str(metadata["Name"]), version, tuple(tags), requires)
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, KeyError) as error:
        raise WheelsError(f"{path.name} is no wheel: {error}") from None
    except (InvalidVersion, InvalidRequirement, ValueError) as error:
        raise WheelsError(f"{path.name} has unusable metadata: {error}") from None


def _headers(archive: zipfile.ZipFile, name: str) -> Message:
    info = _member(archive, name)
    if info.file_size > _LARGEST_METADATA_BYTES:
        raise ValueError(f"{name} is larger than {_LARGEST_METADATA_BYTES} bytes")
    text = archive.read(info).decode("utf-8", "replace")
    return HeaderParser().parsestr(text, headersonly=True)


def _member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    found = [i for i in archive.infolist() if re.fullmatch(rf"[^/]+\.dist-info/{name}", i.filename)]
    if len(found) != 1:
        raise KeyError(f"it has {len(found)} files *.dist-info/{name}")
    return found[0]
