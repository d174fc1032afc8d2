"""RunInstances: what AWS checks, what a client token means, and what comes of it."""

from __future__ import annotations

import base64
import re
import uuid
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree as ET

from moto.ec2.exceptions import InvalidSubnetIdError

from tests.lab.aws.emulation import Emulation, is_type, vcpus_of, zones_offering
from tests.lab.aws.images import Images
from tests.lab.aws.lifecycle import Lifecycle, Rented
from tests.lab.aws.prices import Prices
from tests.lab.aws.quotas import Quotas, quota_of
from tests.lab.aws.wire import EC2_XML, ApiError, Reply, Request
from tests.lab.faults import Faults

DEATH = "pending"  # the name under which a test scripts how instances die before they run
_USER_DATA_BYTES = 16 * 1024
# What the service leaves out when it compares two requests with one token.
_NOT_COMPARED = re.compile(
    r"^(Action|Version|ClientToken|DryRun|SubnetId|Placement\.AvailabilityZone"
    r"|NetworkInterface\.\d+\.SubnetId)$"
)


@dataclass(frozen=True, slots=True)
class Order:
    """What a RunInstances call asks for, read out of its parameters."""

    region: str
    instance_type: str
    image_id: str
    market: str
    count: int
    token: str
    subnet_id: str
    zone: str  # of the subnet or the placement; empty where AWS may choose
    bid: str | None

    @property
    def places(self) -> tuple[str, ...]:
        """What a fault may be tied to."""
        return tuple(each for each in (self.region, self.zone, self.market) if each)


@dataclass(slots=True)
class Launches:
    """The launching side of EC2; the caller holds the cloud's lock."""

    emulation: Emulation
    lifecycle: Lifecycle
    images: Images
    prices: Prices
    quotas: Quotas
    faults: Faults
    looks: int = 0
    lag_s: float = 0.0
    _tokens: dict[tuple[str, str, str], tuple[dict[str, str], list[str]]] = field(
        default_factory=dict
    )

    def read(self, request: Request) -> Order:
        """Take the call apart; the zone comes from the subnet that it names."""
        form = request.form
        subnet = form.get("SubnetId") or form.get("NetworkInterface.1.SubnetId", "")
        zone = form.get("Placement.AvailabilityZone", "")
        if subnet:
            try:
                backend = self.emulation.region(request.region)
                zone = backend.get_subnet(subnet).availability_zone
            except InvalidSubnetIdError:
                zone = ""
        return Order(
            region=request.region,
            instance_type=form.get("InstanceType", "m1.small"),
            image_id=form.get("ImageId", ""),
            market=form.get("InstanceMarketOptions.MarketType") or "on-demand",
            count=int(wanted) if (wanted := form.get("MaxCount", "1")).isdigit() else 0,
            token=form.get("ClientToken", ""),
            subnet_id=subnet,
            zone=zone,
            bid=form.get("InstanceMarketOptions.SpotOptions.MaxPrice"),
        )

    def run(self, request: Request) -> Reply:
        """Launch, or give the first answer again to a token that was used before.

        Raises:
            ApiError: As EC2 refuses.
        """
        order = self.read(request)
        self._check(request, order)
        ids = self.remember(request)
        if ids:
            self._refuse_terminated(ids)
            return self._reservation(request, ids)
        zone = order.zone or zones_offering(order.region, order.instance_type)[0]
        self._check_room(order, zone)
        ids += self._launch(request, order, zone)
        return self._reservation(request, ids)

    def remember(self, request: Request) -> list[str]:
        """The instances of the call's token, to be added to; EC2 knows it though the call fails.

        github.com/ubicloud/ubicloud/pull/5898: a token of a call that was refused for want of
        capacity cannot be used with other parameters.

        Raises:
            ApiError: The token was used with another request.
        """
        order = self.read(request)
        compared = {k: v for k, v in request.form.items() if not _NOT_COMPARED.match(k)}
        if not order.token:
            return []
        key = (order.region, order.zone, order.token)
        before, ids = self._tokens.setdefault(key, (compared, []))
        if before != compared:
            raise ApiError(
                "IdempotentParameterMismatch",
                "Arguments on this idempotent request are inconsistent with arguments used "
                "in previous request(s).",
            )
        return ids

    def _refuse_terminated(self, ids: list[str]) -> None:
        """github.com/boto/boto3/issues/4406, January 2025."""
        if any(self.lifecycle.rented[each].state == "terminated" for each in ids):
            raise ApiError(
                "IdempotentInstanceTerminated",
                "The client token you have provided is associated with a terminated instance. "
                "Please use a different client token.",
            )

    def used_vcpus(self, region: str, quota: str) -> int:
        """How much of a quota the region's pending and running instances take."""
        return sum(
            vcpus_of(each.instance.instance_type)
            for each in self.lifecycle.rented.values()
            if each.region == region
            and each.state in ("pending", "running")
            and quota_of(each.instance.instance_type, each.market) == quota
        )

    def _check(self, request: Request, order: Order) -> None:
        if not order.image_id:
            raise ApiError("MissingParameter", "The request must contain the parameter ImageId")
        if not is_type(order.instance_type):
            raise ApiError(
                "InvalidParameterValue",
                f"Invalid value '{order.instance_type}' for InstanceType.",
            )
        backend = self.emulation.region(order.region)
        self._check_names(request, order, backend)
        self._check_disks(request, backend.amis[order.image_id])
        self._check_zone(order)
        user_data = base64.b64decode(request.form.get("UserData", ""))
        if len(user_data) > _USER_DATA_BYTES:
            raise ApiError("InvalidParameterValue", "User data is limited to 16384 bytes")
        if len(order.token) > 64:
            raise ApiError("InvalidParameterValue", "The client token is longer than 64 characters")
        if request.form.get("DryRun", "").lower() == "true":
            raise ApiError(
                "DryRunOperation",
                "Request would have succeeded, but DryRun flag is set.",
                412,
            )

    def _check_names(self, request: Request, order: Order, backend: Any) -> None:
        image = order.image_id
        if image not in backend.amis:
            raise ApiError("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist")
        key = request.form.get("KeyName")
        if key and key not in backend.key_pairs:
            raise ApiError("InvalidKeyPair.NotFound", f"The key pair '{key}' does not exist")
        if order.subnet_id and not order.zone:
            raise ApiError(
                "InvalidSubnetID.NotFound", f"The subnet ID '{order.subnet_id}' does not exist"
            )
        groups = request.numbered("SecurityGroupId")
        groups += request.numbered("NetworkInterface.1.SecurityGroupId")
        for group in groups:
            if backend.get_security_group_from_id(group) is None:
                raise ApiError(
                    "InvalidGroup.NotFound", f"The security group '{group}' does not exist"
                )

    def _check_disks(self, request: Request, image: Any) -> None:
        root = image.block_device_mappings[0]["Ebs"]
        size = request.form.get("BlockDeviceMapping.1.Ebs.VolumeSize")
        device = request.form.get("BlockDeviceMapping.1.DeviceName")
        if size and device == image.root_device_name and int(size) < root["VolumeSize"]:
            raise ApiError(
                "InvalidBlockDeviceMapping",
                f"Volume of size {size}GB is smaller than snapshot '{root['SnapshotId']}', "
                f"expect size >= {root['VolumeSize']}GB",
            )

    def _check_zone(self, order: Order) -> None:
        zones = zones_offering(order.region, order.instance_type)
        if zones and order.zone in ("", *zones):
            return
        raise ApiError(
            "Unsupported",
            f"Your requested instance type ({order.instance_type}) is not supported in your "
            f"requested Availability Zone ({order.zone}). Please retry your request by not "
            f"specifying an Availability Zone or choosing {', '.join(zones)}.",
        )

    def _check_room(self, order: Order, zone: str) -> None:
        quota = quota_of(order.instance_type, order.market)
        self.quotas.check(
            order.region,
            order.instance_type,
            order.market,
            wanted=order.count * vcpus_of(order.instance_type),
            used=self.used_vcpus(order.region, quota) if quota else 0,
        )
        if order.market == "spot":
            self.prices.check_bid(zone, order.instance_type, order.bid)

    def _launch(self, request: Request, order: Order, zone: str) -> list[str]:
        reply = self.emulation.forward(request.with_form(self._completed(request, order, zone)))
        root = ET.fromstring(reply.body)
        if reply.status != 200:
            raise ApiError(
                root.findtext(".//{*}Code", "InternalError"),
                root.findtext(".//{*}Message", ""),
                reply.status,
            )
        ids = [
            each.text or "" for each in root.iterfind(".//{*}instancesSet/{*}item/{*}instanceId")
        ]
        known = self.emulation.instances(order.region)
        for instance_id in ids:
            self._admit(request, order, known[instance_id])
        return ids

    def _completed(self, request: Request, order: Order, zone: str) -> dict[str, str]:
        """The parameters with AWS's own defaults filled in, as moto does not know them."""
        form = {**request.form, "MinCount": str(order.count)}
        backend = self.emulation.region(order.region)
        if not order.subnet_id:
            subnet = backend.get_default_subnets()[zone]
            nic = "NetworkInterface.1." if "NetworkInterface.1.DeviceIndex" in form else ""
            form[f"{nic}SubnetId"] = subnet.id
        root = backend.amis[order.image_id].root_device_name
        n = 1
        while device := form.get(f"BlockDeviceMapping.{n}.DeviceName"):
            if device == root:
                size = str(backend.amis[order.image_id].root_gb)
                form.setdefault(f"BlockDeviceMapping.{n}.Ebs.DeleteOnTermination", "true")
                form.setdefault(f"BlockDeviceMapping.{n}.Ebs.VolumeSize", size)
            n += 1
        if n == 1:
            form["BlockDeviceMapping.1.DeviceName"] = root
            form["BlockDeviceMapping.1.Ebs.VolumeSize"] = str(backend.amis[order.image_id].root_gb)
            form["BlockDeviceMapping.1.Ebs.VolumeType"] = "gp3"
            form["BlockDeviceMapping.1.Ebs.DeleteOnTermination"] = "true"
        return form

    def _admit(self, request: Request, order: Order, instance: Any) -> Rented:
        keeps = request.form.get("NetworkInterface.1.DeleteOnTermination", "").lower() == "false"
        for nic in instance.nics.values():
            nic.delete_on_termination = not keeps
            nic.add_tags(request.tags("network-interface"))
            groups = {group.id: group for group in (*nic._group_set, *instance.security_groups)}
            instance.security_groups = list(groups.values())
        rented = self.lifecycle.admit(
            instance,
            order.region,
            market=order.market,
            user=self.images.user_of(order.image_id, order.region),
            death=self.faults.take(DEATH, (*order.places, instance.placement.zone), is_call=False),
            spot_tags=request.tags("spot-instances-request"),
        )
        rented.looks_left = self.looks
        rented.hide_for(self.lag_s)
        return rented

    def _reservation(self, request: Request, ids: list[str]) -> Reply:
        """The reservation as it is now, in the clothes of a RunInstances answer."""
        form = {"Action": "DescribeInstances", "Version": "2016-11-15"}
        form |= {f"InstanceId.{n}": each for n, each in enumerate(ids, 1)}
        reply = self.emulation.forward(request.with_form(form))
        text = reply.body.decode()
        inner = text.partition("<reservationSet><item>")[2]
        inner = inner.rpartition("</item></reservationSet>")[0]
        body = (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<RunInstancesResponse xmlns="{EC2_XML}">'
            f"<requestId>{uuid.uuid4()}</requestId>{inner}</RunInstancesResponse>"
        )
        return Reply(200, body.encode(), reply.content_type, reply.headers)
