"""The machine images that the emulated AWS offers, and the public parameters that name them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.lab.aws.wire import ApiError, Reply, Request, json_reply

PREFIX = "/aws/service/deeplearning/ami/"
# The account that publishes the Deep Learning images.
OWNER = "898082745236"
_ROOT_GB = 45


@dataclass(frozen=True, slots=True)
class Line:
    """One line of images: the newest build of it, and the parameter that points there."""

    line: str
    name: str
    created_at: datetime
    architecture: str = "x86_64"
    root_device: str = "/dev/sda1"
    user: str = "ubuntu"

    @property
    def parameter(self) -> str:
        """The public parameter; the bare images have none here."""
        return f"{PREFIX}{self.architecture}/{self.line}/latest/ami-id"

    def id_in(self, region: str) -> str:
        """The image id, another one in each region."""
        return "ami-" + hashlib.sha256(f"{region}/{self.name}".encode()).hexdigest()[:17]


def _torch(version: str, system: str, day: datetime, **other: Any) -> Line:
    title = system.replace("-", " ").title().replace("Amazon Linux", "Amazon Linux")
    return Line(
        f"oss-nvidia-driver-gpu-pytorch-{version}-{system}",
        f"Deep Learning OSS Nvidia Driver AMI GPU PyTorch {version} ({title}) {day:%Y%m%d}",
        day,
        **other,
    )


def _day(year: int, month: int, day: int) -> datetime:
    return datetime(year, month, day, 3, 14, 15, tzinfo=UTC)


# PyTorch 2.6 on Ubuntu 22.04 is gone, as lines go one day; others stay.
LINES: tuple[Line, ...] = (
    _torch("2.7", "ubuntu-22.04", _day(2026, 2, 20)),
    _torch("2.8", "ubuntu-24.04", _day(2026, 3, 9)),
    _torch("2.9", "ubuntu-24.04", _day(2026, 3, 17)),
    _torch(
        "2.9",
        "amazon-linux-2023",
        _day(2026, 3, 17),
        root_device="/dev/xvda",
        user="ec2-user",
    ),
    _torch("2.10", "ubuntu-24.04", _day(2026, 10, 9)),
    _torch("2.11", "ubuntu-24.04", _day(2026, 10, 9)),
    _torch("2.12", "ubuntu-24.04", _day(2026, 10, 9)),
    _torch("2.13", "ubuntu-26.04", _day(2026, 10, 28)),
    Line(
        "base-oss-nvidia-driver-gpu-ubuntu-22.04",
        "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20260820",
        _day(2026, 8, 20),
    ),
    Line(
        "oss-nvidia-driver-gpu-pytorch-2.11-ubuntu-24.04",
        "Deep Learning ARM64 AMI OSS Nvidia Driver GPU PyTorch 2.11 (Ubuntu 24.04) 20261009",
        _day(2026, 10, 9),
        architecture="arm64",
    ),
)
# An older build of a line: its image is still there, the parameter points to the newer one.
OLDER: tuple[Line, ...] = (_torch("2.9", "ubuntu-24.04", _day(2026, 1, 12)),)


class Images:
    """What is on offer in every region, until a test takes some of it away."""

    def __init__(self) -> None:
        self._lines = list(LINES)
        self._gone: set[str] = set()

    def drop_parameter(self, line: str) -> None:
        """AWS takes the line's name away; its images stay."""
        self._lines = [each for each in self._lines if each.line != line]

    def deregister(self, line: str) -> None:
        """The line's newest image is gone; its parameter still points there."""
        self._gone.add(next(each.name for each in self._lines if each.line == line))

    def id_of(self, line: str, region: str) -> str:
        """The image id that the line's parameter gives in the region."""
        return next(each for each in self._lines if each.line == line).id_in(region)

    def offered(self) -> Iterator[Line]:
        """Every image that can be launched."""
        yield from (each for each in (*LINES, *OLDER) if each.name not in self._gone)

    def user_of(self, image_id: str, region: str) -> str:
        """The login user that cloud-init makes on this image."""
        known = {each.id_in(region): each.user for each in (*LINES, *OLDER)}
        return known.get(image_id, "ubuntu")

    def register(self, backend: Any, ami_class: Any) -> None:
        """Bring the emulation's list of images in a region up to date."""
        wanted = {each.id_in(backend.region_name): each for each in self.offered()}
        for image_id in [id_ for id_ in backend.amis if id_ not in wanted]:
            if backend.amis[image_id].owner_id == OWNER:
                del backend.amis[image_id]
        for image_id, line in wanted.items():
            if image_id not in backend.amis:
                backend.amis[image_id] = _as_ami(backend, ami_class, image_id, line)

    def answer(self, request: Request) -> Reply:
        """GetParameter, GetParameters and GetParametersByPath for the names under `PREFIX`."""
        return _ANSWERS[request.name](self, request)

    def _parameters(self, region: str) -> dict[str, dict[str, Any]]:
        return {each.parameter: _as_parameter(each, region) for each in self._lines}

    def _one(self, request: Request) -> Reply:
        found = self._parameters(request.region).get(request.data["Name"])
        if found is None:
            raise ApiError("ParameterNotFound", "")
        return json_reply({"Parameter": found})

    def _several(self, request: Request) -> Reply:
        known = self._parameters(request.region)
        names = request.data["Names"]
        return json_reply(
            {
                "Parameters": [known[name] for name in names if name in known],
                "InvalidParameters": [name for name in names if name not in known],
            }
        )

    def _by_path(self, request: Request) -> Reply:
        path = request.data["Path"].rstrip("/") + "/"
        deep = request.data.get("Recursive", False)
        known = self._parameters(request.region)
        fits = [
            n for n in sorted(known) if n.startswith(path) and (deep or "/" not in n[len(path) :])
        ]
        start = int(request.data.get("NextToken", "0"))
        end = start + min(int(request.data.get("MaxResults", 10)), 10)
        more = {"NextToken": str(end)} if end < len(fits) else {}
        return json_reply({"Parameters": [known[name] for name in fits[start:end]], **more})


_ANSWERS = {
    "GetParameter": Images._one,
    "GetParameters": Images._several,
    "GetParametersByPath": Images._by_path,
}


def asks_for_images(request: Request) -> bool:
    """Whether a call to SSM is about the names under `PREFIX`."""
    data = request.data
    asked = [data.get("Name", ""), data.get("Path", "").rstrip("/") + "/", *data.get("Names", [])]
    return request.name in _ANSWERS and any(name.startswith(PREFIX) for name in asked)


def _as_parameter(line: Line, region: str) -> dict[str, Any]:
    return {
        "Name": line.parameter,
        "Type": "String",
        "Value": line.id_in(region),
        "Version": 7,
        "LastModifiedDate": line.created_at.timestamp(),
        "ARN": f"arn:aws:ssm:{region}::parameter{line.parameter}",
        "DataType": "text",
    }


def _as_ami(backend: Any, ami_class: Any, image_id: str, line: Line) -> Any:
    image = ami_class(
        backend,
        image_id,
        name=line.name,
        description=line.name,
        owner_id=OWNER,
        owner_alias="amazon",
        public=True,
        virtualization_type="hvm",
        architecture=line.architecture,
        creation_date=line.created_at.replace(tzinfo=None),
        image_location=f"amazon/{line.name}",
        hypervisor="xen",
        root_device_type="ebs",
        root_device_name=line.root_device,
        region_name=f"{backend.region_name}a",
    )
    image.root_gb = _ROOT_GB
    return image
