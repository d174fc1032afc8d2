"""The network of an instance: a subnet of its zone, and the project's security group."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_network

from orchestrator.domain.machine import (
    ConfigError,
    Extent,
    Place,
    ProviderError,
    ProviderUnavailableError,
)
from runners.aws import tagging
from runners.aws.machines import SSM, SSM_PROGRAMS
from runners.aws.platform_config import Ec2PlatformConfig
from runners.aws.sdk import Answer, AwsAccount
from runners.shell.proxy_command import require_programs
from runners.ttl_cache import TtlCache

SSH_PORT = 22
GROUP_GONE = "InvalidGroup.NotFound"


@dataclass(frozen=True, slots=True)
class Subnet:
    """Part of one zone."""

    id: str
    vpc: str
    zone: str


class Network:
    """Finds subnets and makes the security group."""

    def __init__(
        self, account: AwsAccount, now: Callable[[], datetime], *, project: str, ingress_cidr: str
    ) -> None:
        self._account = account
        self._project = project
        self._cidr = ingress_cidr
        self._subnets: TtlCache[tuple[Subnet, ...]] = TtlCache(now, serve_stale=True)
        self._groups: TtlCache[str] = TtlCache(now, serve_stale=True)

    def subnets(self, config: Ec2PlatformConfig, region: str) -> dict[str, Subnet]:
        """Return subnets by zone: the platform's in the region, or the zones' default ones.

        Raises:
            ConfigError: The region has no default subnet at all.
            ProviderError: EC2 did not answer.
        """
        if config.subnets:
            asked = {"Name": "subnet-id", "Values": list(config.subnets)}
        else:
            asked = {"Name": "default-for-az", "Values": ["true"]}
        found = self._subnets.get((region, config.subnets), lambda: self._describe(region, asked))
        if not found and not config.subnets:
            raise ConfigError(
                f"{region} has no default subnet; name your own as options.subnet, or make the "
                "default VPC again (`aws ec2 create-default-vpc`)",
                extent=Extent.REGION,
            )
        return {subnet.zone: subnet for subnet in found}

    def subnet(self, config: Ec2PlatformConfig, place: Place) -> Subnet:
        """Return the subnet of the place's zone. Raises ConfigError, also as `subnets` does."""
        found = self.subnets(config, place.region).get(place.zone)
        if found is None:
            raise ConfigError(
                f"no subnet of {place.zone} is known; name one of your own as options.subnet, or "
                "make the default one again (`aws ec2 create-default-subnet`)",
                extent=Extent.ZONE,
            )
        return found

    def require_way_in(self, config: Ec2PlatformConfig) -> None:
        """Raise ConfigError if the controller could not connect to an instance.

        A public address needs an ingress network, and a session of Systems Manager its programs.
        """
        if config.connect == SSM:
            require_programs(*SSM_PROGRAMS)
        if config.public and not self._cidr:
            raise ConfigError(
                "SEATRIAL_INGRESS_CIDR is not set: name the addresses that may reach port 22 of "
                "rented machines (203.0.113.7/32), or say `connect: private` in the platform",
                extent=Extent.PROJECT,
            )

    def group(self, subnet: Subnet, region: str) -> str:
        """Return the id of the project's security group, which is created if it is missing.

        Raises:
            ConfigError: A group of that name belongs to others, or allows other networks as well.
            ProviderError: EC2 refuses.
        """
        return self._groups.get((region, subnet.vpc), lambda: self._ensure(subnet.vpc, region))

    def forget_group(self, subnet: Subnet, region: str) -> None:
        """Forget a deleted security group, so that it is looked up again."""
        self._groups.forget((region, subnet.vpc))

    def _name(self, cidr: str) -> str:
        """Return the name of the security group that admits one network."""
        digest = hashlib.sha256(cidr.encode()).hexdigest()[:8]
        return f"seatrial-{self._project}-{digest}"

    def _describe(self, region: str, condition: Answer) -> tuple[Subnet, ...]:
        found = self._account.pages(
            "ec2", region, "describe_subnets", "Subnets", Filters=[condition]
        )
        subnets = (Subnet(x["SubnetId"], x["VpcId"], x["AvailabilityZone"]) for x in found)
        # If a zone has several subnets, the choice is always the same.
        return tuple(sorted(subnets, key=lambda subnet: subnet.id, reverse=True))

    def _ensure(self, vpc: str, region: str) -> str:
        # Without the setting (private machines only) the controller is inside the VPC.
        cidr = self._cidr or self._block(vpc, region)
        name = self._name(cidr)
        group = self._find(name, vpc, region) or self._make(name, vpc, region)
        tags = tagging.read(group.get("Tags"))
        if tags.get(tagging.PROJECT) != self._project:
            raise ConfigError(
                f"the security group {group['GroupId']} in {region} is called {name} but has no "
                f"tag {tagging.PROJECT}={self._project}: it is not ours; rename or delete it",
                extent=Extent.REGION,
            )
        self._admit(group, cidr, region)
        return str(group["GroupId"])

    def _block(self, vpc: str, region: str) -> str:
        answer = self._account.read("ec2", region, "describe_vpcs", what=vpc, VpcIds=[vpc])
        return str(answer["Vpcs"][0]["CidrBlock"])

    def _find(self, name: str, vpc: str, region: str) -> Answer | None:
        found = self._account.pages(
            "ec2",
            region,
            "describe_security_groups",
            "SecurityGroups",
            Filters=[
                {"Name": "group-name", "Values": [name]},
                {"Name": "vpc-id", "Values": [vpc]},
            ],
        )
        return next(iter(found), None)

    def _make(self, name: str, vpc: str, region: str) -> Answer:
        tags = {tagging.PROJECT: self._project, tagging.SHARED: "true"}
        specification = tagging.specification(tags, "security-group")
        try:
            made = self._account.create(
                "ec2",
                region,
                "create_security_group",
                what=name,
                GroupName=name,
                Description=f"SSH to the machines of {self._project}, from its controllers only",
                VpcId=vpc,
                TagSpecifications=specification,
            )
        except ProviderError as error:
            # Another cell was faster.
            duplicate = error.code == "InvalidGroup.Duplicate"
            found = self._find(name, vpc, region) if duplicate else None
            if found is None:
                raise
            return found
        return {"GroupId": made["GroupId"], "Tags": specification[0]["Tags"]}

    def _admit(self, group: Answer, cidr: str, region: str) -> None:
        """Allow SSH from the given addresses; refuse a group that allows others."""
        admitted = {source for rule in group.get("IpPermissions", ()) for source in _sources(rule)}
        others = sorted(admitted - {(SSH_PORT, cidr)})
        if others:
            raise ConfigError(
                f"the security group {group['GroupId']} in {region} also lets in "
                f"{', '.join(f'{source} to port {port}' for port, source in others)}; remove these "
                "rules, or delete the group: it is made again",
                extent=Extent.REGION,
            )
        if not admitted:
            self._authorize(str(group["GroupId"]), cidr, region)

    def _authorize(self, group: str, cidr: str, region: str) -> None:
        try:
            self._account.create(
                "ec2",
                region,
                "authorize_security_group_ingress",
                what=group,
                GroupId=group,
                IpPermissions=[_rule(cidr)],
            )
        except ProviderError as error:
            if error.code == GROUP_GONE:
                raise ProviderUnavailableError(
                    f"{error}; it was made just now, and is not visible yet", code=error.code
                ) from error
            if error.code != "InvalidPermission.Duplicate":
                raise


def _rule(cidr: str) -> Answer:
    about = {"Description": "the controllers of the project"}
    rule: Answer = {"IpProtocol": "tcp", "FromPort": SSH_PORT, "ToPort": SSH_PORT}
    if ip_network(cidr).version == 6:
        return {**rule, "Ipv6Ranges": [{"CidrIpv6": cidr, **about}]}
    return {**rule, "IpRanges": [{"CidrIp": cidr, **about}]}


def _sources(rule: Answer) -> set[tuple[int, str]]:
    port = int(rule.get("FromPort", -1)) if rule.get("FromPort") == rule.get("ToPort") else -1
    ranges = [one["CidrIp"] for one in rule.get("IpRanges", ())]
    ranges += [one["CidrIpv6"] for one in rule.get("Ipv6Ranges", ())]
    ranges += [one.get("GroupId", "a group") for one in rule.get("UserIdGroupPairs", ())]
    ranges += [one["PrefixListId"] for one in rule.get("PrefixListIds", ())]
    return {(port, source) for source in ranges}
