"""Permissions of a controller and the kill switch in an AWS account: IAM policies, and a check."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from orchestrator.domain.cloud_account import AccountCheck, CheckLevel
from orchestrator.domain.machine import ConfigError, CredentialsError, ProviderError
from runners.aws import tagging
from runners.aws.errors import DENIED
from runners.aws.sdk import Answer, AwsAccount

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
        """The statement in IAM's format."""
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
    """Return the policy document."""
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


_SESSION = re.compile(r"arn:(?P<partition>[\w-]+):sts::\d+:assumed-role/(?P<role>[^/]+)/.+")
_DRY = "DryRunOperation"
# Any valid id: EC2 checks the permission first, or reports that the id does not exist.
_DRY_RUNS: dict[str, dict[str, Any]] = {
    "ec2:RunInstances": {"ImageId": "ami-00000000000000000", "MinCount": 1, "MaxCount": 1},
    "ec2:CreateSecurityGroup": {"GroupName": "seatrial-doctor", "Description": "never made"},
    "ec2:TerminateInstances": {"InstanceIds": ["i-00000000000000000"]},
    "ec2:CancelSpotInstanceRequests": {"SpotInstanceRequestIds": ["sir-00000000"]},
    "ec2:DeleteVolume": {"VolumeId": "vol-00000000000000000"},
    "ec2:DeleteNetworkInterface": {"NetworkInterfaceId": "eni-00000000000000000"},
    "ec2:ReleaseAddress": {"AllocationId": "eipalloc-00000000000000000"},
    "ec2:DeleteSecurityGroup": {"GroupId": "sg-00000000000000000"},
}


class PermissionCheck:
    """Checks each action by IAM's simulation, or by dry runs if that is not allowed."""

    def __init__(self, account: AwsAccount, region: str, project: str) -> None:
        self._account = account
        self._region = region
        self._project = project

    def run(self) -> Iterator[AccountCheck]:
        """Yield one check for each action, and one for the spot role. Raises ProviderError."""
        who = str(self._account.read("sts", self._region, "get_caller_identity")["Arn"])
        yield AccountCheck(CheckLevel.OK, "identity", who)
        yield from self._actions(who)
        yield self._spot_role()

    def _actions(self, who: str) -> Iterator[AccountCheck]:
        if who.endswith(":root"):
            yield AccountCheck(
                CheckLevel.WARN, "permissions", "the root user may do everything: use another one"
            )
            return
        try:
            principal = self._principal(who)
            found = [
                told
                for statement in controller(self._project)
                for told in self._simulated(principal, statement)
            ]
        except (CredentialsError, ConfigError) as error:
            yield AccountCheck(
                CheckLevel.WARN,
                "iam:SimulatePrincipalPolicy",
                f"{error.code}, so actions are tried by dry runs, and some stay unknown",
                _grant(who, ["iam:SimulatePrincipalPolicy"], self._project),
            )
            found = [(action, self._tried(action)) for action in _DRY_RUNS]
        # An action may have two conditions.
        found = list(dict.fromkeys(found))
        missing = [action for action, decision in found if decision.startswith("no")]
        yield from (_check(action, decision) for action, decision in found)
        if missing:
            yield AccountCheck(
                CheckLevel.FAIL,
                "policy",
                f"{len(missing)} of {len(found)} actions are not allowed",
                _grant(who, missing, self._project),
            )

    def _principal(self, who: str) -> str:
        """Return the principal that IAM simulates: a session's role, with its path."""
        session = _SESSION.fullmatch(who)
        if session is None:
            return who.replace(":sts:", ":iam:")
        role = self._account.read("iam", self._region, "get_role", RoleName=session["role"])
        return str(role["Role"]["Arn"])

    def _simulated(self, principal: str, statement: Statement) -> Iterator[tuple[str, str]]:
        results = self._account.pages(
            "iam",
            self._region,
            "simulate_principal_policy",
            "EvaluationResults",
            PolicySourceArn=principal,
            ActionNames=list(statement.actions),
            ContextEntries=[
                {"ContextKeyName": key, "ContextKeyType": "string", "ContextKeyValues": [value]}
                for key, value in statement.context.items()
            ],
        )
        for result in results:
            yield str(result["EvalActionName"]), _decision(result)

    def _tried(self, action: str) -> str:
        operation = re.sub(r"(?<!^)(?=[A-Z])", "_", action.partition(":")[2]).lower()
        try:
            self._account.read("ec2", self._region, operation, **_DRY_RUNS[action], DryRun=True)
        except ProviderError as error:
            if error.code == _DRY:
                return "allowed, by a dry run"
            if error.code == DENIED:
                return "not allowed, by a dry run"
            return f"unknown: the dry run was answered with {error.code}"
        return "unknown: the dry run had no answer"

    def _spot_role(self) -> AccountCheck:
        name = SPOT_ROLE
        command = f"aws iam create-service-linked-role --aws-service-name {SPOT_SERVICE}"
        try:
            self._account.read("iam", self._region, "get_role", RoleName=name)
        except ProviderError as error:
            if error.code == "NoSuchEntity":
                text = "is not there: the first spot request would be refused"
                return AccountCheck(CheckLevel.FAIL, name, text, command)
            return AccountCheck(CheckLevel.WARN, name, f"not known: {error}", command)
        return AccountCheck(CheckLevel.OK, name, "is there")


def _decision(result: Answer) -> str:
    decision = str(result["EvalDecision"])
    if decision == "allowed":
        return "allowed"
    organizations = result.get("OrganizationsDecisionDetail", {})
    if organizations.get("AllowedByOrganizations") is False:
        return "not allowed: a policy of the organisation (SCP) denies it"
    return "not allowed: a policy denies it" if decision == "explicitDeny" else "not allowed"


def _check(action: str, decision: str) -> AccountCheck:
    level = CheckLevel.FAIL if decision.startswith("no") else CheckLevel.WARN
    level = CheckLevel.OK if decision.startswith("allowed") else level
    return AccountCheck(level, action, decision)


def _grant(who: str, actions: list[str], project: str) -> str:
    """Return the command with which an administrator grants the actions."""
    wanted = [
        Statement(one.sid, one.reason, kept, one.context)
        for one in controller(project)
        if (kept := tuple(action for action in one.actions if action in actions))
    ]
    document = json.dumps(policy(tuple(wanted)))
    session = _SESSION.fullmatch(who)
    kind, name = ("role", session["role"]) if session else ("user", who.rpartition("/")[2])
    return (
        f"aws iam put-{kind}-policy --{kind}-name {name} --policy-name seatrial "
        f"--policy-document '{document}'"
    )
