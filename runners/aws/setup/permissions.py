"""The permissions of a controller and of the kill switch in an AWS account, as IAM policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runners.aws import tagging

SPOT_SERVICE = "spot.amazonaws.com"
SPOT_ROLE = "AWSServiceRoleForEC2Spot"
_OWNED = f"aws:ResourceTag/{tagging.PROJECT}"
_CREATED_BY = "ec2:CreateAction"


@dataclass(frozen=True, slots=True)
class Statement:
    """Actions that are allowed together."""

    sid: str
    reason: str
    """Purpose of the permissions, for a person."""
    actions: tuple[str, ...]
    context: dict[str, str] = field(default_factory=dict)
    """Condition keys with their required values."""

    @property
    def document(self) -> dict[str, Any]:
        """Return the statement in IAM's format."""
        # The resource cannot be narrower: machines run in any region, and images have other owners.
        allowed = {"Effect": "Allow", "Action": list(self.actions), "Resource": "*"}
        condition = {"Condition": {"StringEquals": dict(self.context)}} if self.context else {}
        return {"Sid": self.sid, **allowed, **condition}


def controller(project: str) -> tuple[Statement, ...]:
    """Return the permissions of a project's controllers."""
    return (
        Statement(
            "Read",
            "places, images, prices, quotas, and the inventory of what is there",
            (
                *(f"ec2:Describe{kind}" for kind in _DESCRIBED),
                "ec2:GetConsoleOutput",
                "ssm:GetParameter",
                "pricing:GetProducts",
                "servicequotas:GetServiceQuota",
                "servicequotas:GetAWSDefaultServiceQuota",
            ),
        ),
        Statement("Launch", "rents instances", ("ec2:RunInstances", "ec2:CreateSecurityGroup")),
        *(
            Statement(
                f"TagBy{call}",
                "without its tags nothing would be found again",
                ("ec2:CreateTags",),
                {_CREATED_BY: call},
            )
            for call in ("RunInstances", "CreateSecurityGroup")
        ),
        Statement(
            "EndWhatIsTheProjects",
            "gives back what carries the project's tag, and nothing else",
            (
                *_ENDING,
                "ec2:AuthorizeSecurityGroupIngress",
                "ec2:DeleteSecurityGroup",
            ),
            {_OWNED: project},
        ),
        _CHECK,
    )


def kill_switch(project: str) -> tuple[Statement, ...]:
    """Return the permissions of the kill switch."""
    return (
        Statement(
            "Find",
            "what carries the project's tag",
            tuple(f"ec2:Describe{kind}" for kind in ("Regions", *_ENDABLE)),
        ),
        Statement(
            "EndWhatIsTheProjects",
            "what is past its expires-at tag",
            _ENDING,
            {_OWNED: project},
        ),
    )


def policy(statements: tuple[Statement, ...]) -> dict[str, Any]:
    """The policy document."""
    return {"Version": "2012-10-17", "Statement": [one.document for one in statements]}


_ENDABLE = ("Instances", "SpotInstanceRequests", "Volumes", "NetworkInterfaces", "Addresses")
_DESCRIBED = (
    *_ENDABLE,
    "InstanceTypes",
    "InstanceTypeOfferings",
    "Images",
    "Subnets",
    "Vpcs",
    "SecurityGroups",
    "SpotPriceHistory",
    "Regions",
)
_ENDING = (
    "ec2:TerminateInstances",
    "ec2:CancelSpotInstanceRequests",
    "ec2:DeleteVolume",
    "ec2:DeleteNetworkInterface",
    "ec2:ReleaseAddress",
)
_CHECK = Statement(
    "Check",
    "`seatrial doctor aws`",
    (
        "iam:SimulatePrincipalPolicy",
        "iam:GetRole",
        "cloudformation:DescribeStacks",
        "sts:DecodeAuthorizationMessage",
    ),
)
