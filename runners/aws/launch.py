"""Launches instances: a repeated launch sends exactly the same request."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    LaunchRequest,
    Machine,
    Place,
    ProviderError,
    ProviderUnavailableError,
)
from orchestrator.domain.matrix import Platform
from runners.aws import machines, tagging
from runners.aws.catalogue import InstanceCatalogue
from runners.aws.images import AwsImages, RecordedImage
from runners.aws.network import GROUP_GONE, Network, Subnet
from runners.aws.platform_config import Ec2PlatformConfig, parse_platform
from runners.aws.sdk import Answer, AwsAccount
from runners.first_boot import cloud_config

MISMATCH = "IdempotentParameterMismatch"
SPENT = (MISMATCH, "IdempotentInstanceTerminated")
"""Error codes for a used token: with another request, or for a terminated instance."""


def client_token(request: LaunchRequest) -> str:
    """Return EC2's idempotency token, which differs by zone."""
    return hashlib.sha256(f"{request.token} {request.place.zone}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Ec2Launcher:
    """Launches instances."""

    account: AwsAccount
    catalogue: InstanceCatalogue
    images: AwsImages
    network: Network
    project: str
    templates: Path

    def launch(self, request: LaunchRequest) -> Machine:
        """Launch the instance, or return the one of the same token."""
        config = parse_platform(request.platform)
        self.network.require_way_in(config)
        known = self._made_before(request)
        if known is not None:
            return known
        place = request.place
        image = self.image(request.platform, place)
        subnet = self.network.subnet(config, place)
        group = config.security_group or self.network.group(subnet, place.region)
        parameters = _parameters(request, image)
        parameters["NetworkInterfaces"] = [_interface(subnet, group, public=config.public)]
        parameters["BlockDeviceMappings"] = [_disk(image, config)]
        parameters["TagSpecifications"] = self._tags(request, image, config)
        parameters["UserData"] = self._user_data(request, image)
        if config.instance_profile:
            named = "Arn" if config.instance_profile.startswith("arn:") else "Name"
            parameters["IamInstanceProfile"] = {named: config.instance_profile}
        return self._run(request, subnet, parameters)

    def image(self, platform: Platform, place: Place) -> RecordedImage:
        """Return the platform's image for the type at the place. Raises ProviderError."""
        kind = self.catalogue.instance_type(place.instance_type, place.region)
        return self.images.find(parse_platform(platform), kind.architecture, place.region)

    def _run(self, request: LaunchRequest, subnet: Subnet, parameters: Answer) -> Machine:
        place = request.place
        try:
            answer = self.account.create(
                "ec2",
                place.region,
                "run_instances",
                what=f"{place.instance_type} {place.market} in {place.zone}",
                **parameters,
            )
        except ProviderError as error:
            if error.code == GROUP_GONE and not parse_platform(request.platform).security_group:
                self.network.forget_group(subnet, place.region)
                raise ProviderUnavailableError(
                    f"{error}; the security group was deleted meanwhile and is made again",
                    code=error.code,
                ) from error
            if error.code in SPENT:
                return self._spent(request, error)
            raise
        return self._machine(answer["Instances"][0], place.region)

    def _made_before(self, request: LaunchRequest) -> Machine | None:
        """Return the machine of an earlier launch, or None.

        It is found by its tag, because EC2 may forget a client token before the machine ends.
        """
        filters = [
            *tagging.filters(self.project),
            {"Name": f"tag:{tagging.TOKEN}", "Values": [request.token]},
        ]
        found = self._described(request.place.region, filters)
        return self._machine(found[0], request.place.region) if found else None

    def _spent(self, request: LaunchRequest, error: ProviderError) -> Machine:
        """Return the machine of an earlier launch with the same client token.

        If an image or a security group changed between two tries, or the earlier call failed, there
        is no machine, and the place is given up. The caller looks for an instance that is not
        visible yet.
        """
        region = request.place.region
        filters = [{"Name": "client-token", "Values": [client_token(request)]}]
        for found in self._described(region, filters):
            machine = self._machine(found, region)
            if machine.token == request.token:
                return machine
            raise ConfigError(
                f"{error}; the instance {machine.id} has this token but is not ours",
                code=error.code,
            )
        raise CapacityError(
            f"{error}; no instance with this token is visible: a call that failed had used it, or "
            "it is shown late",
            code=error.code,
        )

    def _described(self, region: str, filters: list[Answer]) -> list[Answer]:
        reservations = self.account.pages(
            "ec2", region, "describe_instances", "Reservations", Filters=filters
        )
        return [one for reservation in reservations for one in reservation["Instances"]]

    def _machine(self, instance: Answer, region: str) -> Machine:
        return machines.instance(instance, region, simulated=self.account.is_simulated(region))

    def _tags(
        self, request: LaunchRequest, image: RecordedImage, config: Ec2PlatformConfig
    ) -> list[Answer]:
        tags = {
            **config.tags,
            **request.tags,
            tagging.PROJECT: self.project,
            tagging.TOKEN: request.token,
            tagging.USER: image.user,
            tagging.CONNECT: config.connect,
            tagging.IMAGE_NAME: image.name,
            tagging.IMAGE_CREATED: image.created,
        }
        kinds = ["instance", "volume", "network-interface"]
        if request.place.market == "spot":
            kinds.append("spot-instances-request")
        return tagging.specification(tags, *kinds)

    def _user_data(self, request: LaunchRequest, image: RecordedImage) -> str:
        if request.login is None or request.expires_at is None:
            raise ConfigError(
                "an instance is launched with a login and a time to end at; without them nobody "
                "could enter it, and nothing would end it"
            )
        return cloud_config(
            request.login,
            user=image.user,
            expires_at=request.expires_at,
            templates=self.templates,
        )


def _parameters(request: LaunchRequest, image: RecordedImage) -> Answer:
    parameters: Answer = {
        "ClientToken": client_token(request),
        "ImageId": image.id,
        "InstanceType": request.place.instance_type,
        "MinCount": 1,
        "MaxCount": 1,
        # What powers itself off at its deadline is deleted by it.
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
        },
    }
    if request.place.market == "spot":
        # No MaxPrice: EC2 never asks more than the on-demand price.
        parameters["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {
                "SpotInstanceType": "one-time",
                "InstanceInterruptionBehavior": "terminate",
            },
        }
    return parameters


def _interface(subnet: Subnet, group: str, *, public: bool) -> Answer:
    return {
        "DeviceIndex": 0,
        "SubnetId": subnet.id,
        "Groups": [group],
        "AssociatePublicIpAddress": public,
        "DeleteOnTermination": True,
    }


def _disk(image: RecordedImage, config: Ec2PlatformConfig) -> Answer:
    return {
        "DeviceName": image.root_device,
        "Ebs": {
            "VolumeSize": config.disk_gb,
            "VolumeType": "gp3",
            "Encrypted": True,
            "DeleteOnTermination": True,
            **({"KmsKeyId": config.kms_key} if config.kms_key else {}),
        },
    }
