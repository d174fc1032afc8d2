"""Finds the image to boot: the first available one of an ordered list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.machine import (
    ConfigError,
    CredentialsError,
    Extent,
    ProviderError,
)
from runners.aws.platform_config import Ec2PlatformConfig
from runners.aws.sdk import Answer, AwsAccount
from runners.ttl_cache import TtlCache

AMAZON = "amazon"
_PARAMETER = (
    "/aws/service/deeplearning/ami/{architecture}/oss-nvidia-driver-gpu-pytorch-{torch}-"
    "ubuntu-{ubuntu}/latest/ami-id"
)
# Torch versions with their Ubuntu, in the order to try. Maintained images with Python 3.12 come
# first, newest first; then 2.13, for whose Python 3.14 few wheels exist; then older, unmaintained
# ones. A version that AWS has withdrawn is not found, and the next one is tried.
# docs.aws.amazon.com/dlami/latest/devguide/appendix-ami-release-notes.html, of 2026-10.
_LINES = (
    ("2.12", "24.04"),
    ("2.11", "24.04"),
    ("2.10", "24.04"),
    ("2.9", "24.04"),
    ("2.8", "24.04"),
    ("2.13", "26.04"),
    ("2.7", "22.04"),
    ("2.6", "22.04"),
)
# For accounts that may not read parameters. The two architectures order the words differently.
_NAMES = {
    "x86_64": "Deep Learning OSS Nvidia Driver AMI GPU PyTorch {torch} (Ubuntu {ubuntu}) *",
    "arm64": "Deep Learning ARM64 AMI OSS Nvidia Driver GPU PyTorch {torch} (Ubuntu {ubuntu}) *",
}
_NOT_THERE = frozenset(
    {
        "ParameterNotFound",
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Unavailable",
        "ValidationException",
    }
)


@dataclass(frozen=True, slots=True)
class RecordedImage:
    """The boot image in the form that the lease records."""

    id: str
    name: str
    created: str
    root_device: str
    root_gb: int
    user: str


class AwsImages:
    """Finds boot images, and caches the answers for some minutes by region."""

    def __init__(self, account: AwsAccount, now: Callable[[], datetime]) -> None:
        self._account = account
        self._found: TtlCache[RecordedImage] = TtlCache(now, serve_stale=True)

    def find(self, config: Ec2PlatformConfig, architecture: str, region: str) -> RecordedImage:
        """Return the platform's image in the region.

        Raises:
            ConfigError: No image of its list is available (the text names all), or the disk is too
                small.
            ProviderError: EC2 did not answer.
        """
        key = (region, architecture, tuple(sorted(config.image.items())))
        image = self._found.get(key, lambda: self._find(config, architecture, region))
        if image.root_gb > config.disk_gb:
            raise ConfigError(
                f"disk_gb: the image {image.id} ({image.name}) needs {image.root_gb}, and the "
                f"platform gives {config.disk_gb}",
                extent=Extent.REGION,
            )
        return image

    def _find(self, config: Ec2PlatformConfig, architecture: str, region: str) -> RecordedImage:
        candidates = tuple(_candidates(config, architecture))
        for kind, value in candidates:
            try:
                found = self._look(kind, value, config, region)
            except ProviderError as error:
                unreadable = kind == "ssm" and isinstance(error, CredentialsError)
                # The usual images can be found by their names as well.
                if error.code in _NOT_THERE or (unreadable and not config.image.get("ssm")):
                    continue
                raise
            if found is not None:
                return _image(found, config)
        raise ConfigError(
            f"none of the platform's images is in {region}; tried, in this order: "
            f"{', '.join(value for _, value in candidates)}; name another one under image (ssm, "
            "ami or name)",
            code="NoImage",
            extent=Extent.REGION,
        )

    def _look(self, kind: str, value: str, config: Ec2PlatformConfig, region: str) -> Answer | None:
        if kind == "ssm":
            answer = self._account.read("ssm", region, "get_parameter", what=value, Name=value)
            value = str(answer["Parameter"]["Value"])
        if kind == "name":
            return self._by_name(value, config.image.get("owner", (AMAZON,)), region)
        found = self._account.read(
            "ec2", region, "describe_images", what=value, ImageIds=[value]
        ).get("Images", ())
        return next((image for image in found if image.get("State") == "available"), None)

    def _by_name(self, name: str, owners: Iterable[str], region: str) -> Answer | None:
        found = self._account.pages(
            "ec2",
            region,
            "describe_images",
            "Images",
            Owners=list(owners),
            Filters=[
                {"Name": "name", "Values": [name]},
                {"Name": "state", "Values": ["available"]},
            ],
        )
        return max(found, key=lambda image: str(image["CreationDate"]), default=None)


def _candidates(config: Ec2PlatformConfig, architecture: str) -> Iterator[tuple[str, str]]:
    asked = config.image
    for kind in ("ami", "name", "ssm"):
        yield from ((kind, value) for value in asked.get(kind, ()))
    if not asked.keys() & {"ami", "name", "ssm"}:
        yield from (("ssm", value) for value in default_parameters(architecture))
        name = _NAMES[architecture]
        yield from (("name", name.format(torch=torch, ubuntu=ubuntu)) for torch, ubuntu in _LINES)


def default_parameters(architecture: str) -> tuple[str, ...]:
    """Return the names of the parameters that hold the usual images, in the order of tries."""
    return tuple(
        _PARAMETER.format(architecture=architecture, torch=torch, ubuntu=ubuntu)
        for torch, ubuntu in _LINES
    )


def _image(image: Answer, config: Ec2PlatformConfig) -> RecordedImage:
    root = str(image.get("RootDeviceName") or "/dev/sda1")
    name = str(image.get("Name", ""))
    disks = (x for x in image.get("BlockDeviceMappings", ()) if x.get("DeviceName") == root)
    return RecordedImage(
        id=str(image["ImageId"]),
        name=name,
        created=str(image.get("CreationDate", "")),
        root_device=root,
        root_gb=max((int(x.get("Ebs", {}).get("VolumeSize", 0)) for x in disks), default=0),
        user=next(iter(config.image.get("user", ())), "") or _usual_user(name),
    )


def _usual_user(name: str) -> str:
    amazon = ("amazon linux", "amazon-linux", "amzn", "al2023")
    return "ec2-user" if any(part in name.casefold() for part in amazon) else "ubuntu"
