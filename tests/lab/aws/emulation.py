"""moto, tamed: one emulated account, its gaps mended, its addresses kept inside the lab."""

from __future__ import annotations

import io
import ipaddress
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

# Read when moto is imported: none of its own images, so that a region opens at once.
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

import moto.ec2.models.elastic_ip_addresses as eip_models
import moto.ec2.models.elastic_network_interfaces as eni_models
import moto.ec2.utils as ec2_utils
import moto.iam.models as iam_models
from moto import settings
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.base_backend import BackendDict
from moto.core.model_instances import reset_model_data
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import Instance
from moto.ec2.models.subnets import Subnet
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from tests.lab.aws.images import Images
from tests.lab.aws.wire import Reply, Request

PUBLIC_ADDRESSES = ipaddress.ip_network("198.51.100.0/24")
ACCOUNT = DEFAULT_ACCOUNT_ID
_MORE_FILTERS = {
    "client-token": "client_token",
    "instance-lifecycle": "lifecycle",
    "spot-instance-request-id": "spot_instance_request_id",
}
_FILTERS = ec2_utils.filter_dict_attribute_mapping


class Image(Ami):
    """An image whose root disk has its real size."""

    root_gb = 15

    @property
    def block_device_mappings(self) -> list[dict[str, Any]]:
        mapping = super().block_device_mappings[0]
        disk = {"VolumeSize": self.root_gb, "VolumeType": "gp3", "DeleteOnTermination": True}
        return [{**mapping, "Ebs": {**mapping["Ebs"], **disk, "Encrypted": False}}]


class Emulation:
    """The one moto of this process: its state is global, so only one may be in use at a time."""

    _in_use = False

    def __init__(self, images: Images) -> None:
        self._images = images
        self._app: Any = None
        self._undo: list[Callable[[], None]] = []
        self._private_used: set[str] = set()
        self._public_next = 0
        self.next_public_address: str | None = None

    def start(self) -> None:
        """Begin with an empty account.

        Raises:
            RuntimeError: Another one is in use.
        """
        if Emulation._in_use:
            raise RuntimeError("an emulated AWS is running in this process already: stop it first")
        Emulation._in_use = True
        _forget()
        self._app = DomainDispatcherApplication(create_backend_app)
        self._set(settings, "ENABLE_AMI_VALIDATION", True)
        self._set(settings, "EC2_ENABLE_INSTANCE_TYPE_VALIDATION", True)
        self._set(eni_models, "random_public_ip", self._public_address)
        self._set(eip_models, "random_ip", self._public_address)
        emulation = self

        def free_address(subnet: Subnet, instance: Any) -> str:
            return emulation._private_address(subnet, instance)

        self._set(Subnet, "get_available_subnet_ip", free_address)
        roles = {**iam_models.SERVICE_NAME_CONVERSION, "spot": "EC2Spot"}
        self._set(iam_models, "SERVICE_NAME_CONVERSION", roles)
        self._set(ec2_utils, "filter_dict_attribute_mapping", {**_FILTERS, **_MORE_FILTERS})
        # moto hands an address back when an instance is garbage: far too late to be of use.
        self._set(Instance, "__del__", lambda _: None)

    def stop(self) -> None:
        """Put moto back as it was and forget the account."""
        while self._undo:
            self._undo.pop()()
        _forget()
        Emulation._in_use = False

    def region(self, name: str) -> Any:
        """The emulation's EC2 of a region, with its images up to date."""
        backend = ec2_backends[ACCOUNT][name]
        self._images.register(backend, Image)
        return backend

    def regions(self) -> Iterator[Any]:
        """The EC2 of every region that anybody spoke to."""
        yield from list(ec2_backends[ACCOUNT].values())

    def instances(self, region: str) -> dict[str, Any]:
        """Every instance the region knows, terminated ones too."""
        kept = ec2_backends[ACCOUNT][region].reservations.values()
        return {each.id: each for reservation in kept for each in reservation.instances}

    def forward(self, request: Request) -> Reply:
        """Let moto answer a call."""
        caught: dict[str, Any] = {}

        def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> Any:
            caught.update(status=int(status.split()[0]), headers=dict(headers))
            return io.BytesIO().write

        chunks = self._app(request.replayed(), start_response)
        body = b"".join(chunks)
        if hasattr(chunks, "close"):
            chunks.close()
        kind = caught["headers"].get("Content-Type", "text/xml")
        kept = tuple(
            (key, value) for key, value in caught["headers"].items() if key.lower().startswith("x-")
        )
        return Reply(caught["status"], body, kind, kept)

    def _set(self, owner: Any, name: str, value: Any) -> None:
        before = getattr(owner, name)
        self._undo.append(lambda: setattr(owner, name, before))
        setattr(owner, name, value)

    def _public_address(self) -> str:
        if self.next_public_address is not None:
            chosen, self.next_public_address = self.next_public_address, None
            return chosen
        taken = {eni.public_ip for backend in self.regions() for eni in backend.enis.values()} | {
            eip.public_ip for backend in self.regions() for eip in backend.addresses
        }
        hosts = PUBLIC_ADDRESSES.num_addresses - 2
        for _ in range(hosts):
            self._public_next = self._public_next % hosts + 1
            address = str(PUBLIC_ADDRESSES[self._public_next])
            if address not in taken:
                return address
        raise RuntimeError(f"no address is left in {PUBLIC_ADDRESSES}")

    def _private_address(self, subnet: Subnet, instance: Any) -> str:
        # Every region's default network is 172.31.0.0/16; behind the addresses of the lab there
        # are machines, so that one address may be given once only, in whichever region.
        for host in list(subnet.cidr.hosts())[3:]:
            address = str(host)
            if address not in self._private_used:
                self._private_used.add(address)
                subnet._subnet_ips[address] = instance
                return address
        raise RuntimeError(f"no address is left in {subnet.cidr}")


def _forget() -> None:
    BackendDict.reset()
    reset_model_data()


def zones_offering(region: str, instance_type: str) -> list[str]:
    """The zones of a region where a type can be had, in order."""
    rows = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, [])
    return sorted(row["Location"] for row in rows if row["InstanceType"] == instance_type)


def is_type(instance_type: str) -> bool:
    """Whether AWS has such a type anywhere."""
    return instance_type in INSTANCE_TYPES


def vcpus_of(instance_type: str) -> int:
    """vCPUs of a type as it comes."""
    return int(INSTANCE_TYPES[instance_type]["VCpuInfo"]["DefaultVCpus"])


def device_of(instance_type: str) -> str:
    """The accelerator's name as the instance-type data has it; empty without one."""
    with suppress(KeyError, IndexError):
        return str(INSTANCE_TYPES[instance_type]["GpuInfo"]["Gpus"][0]["Name"])
    return ""
