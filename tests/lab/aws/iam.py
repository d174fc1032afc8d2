"""IAM of the emulated AWS, where moto is not like it: simulated policies, linked roles."""

from __future__ import annotations

from typing import Any

from moto.iam.access_control import IAMPolicy, IAMPolicyStatement, PermissionResult
from moto.iam.models import iam_backends

from tests.lab.aws.emulation import ACCOUNT
from tests.lab.aws.wire import ApiError, Reply, Request


def answer(request: Request) -> Reply | None:
    """The answer where moto's is not IAM's; None where it is."""
    if request.service != "iam":
        return None
    if request.name == "SimulatePrincipalPolicy":
        return _simulate(request)
    if request.name == "CreateServiceLinkedRole":
        _refuse_second_role(request)
    return None


def _refuse_second_role(request: Request) -> None:
    service = request.form["AWSServiceName"]
    for role in iam_backends[ACCOUNT]["aws"].roles.values():
        if role.path == f"/aws-service-role/{service}/":
            raise ApiError(
                "InvalidInput",
                f"Service role name {role.name} has been taken in this account, please try a "
                "different suffix.",
            )


def _simulate(request: Request) -> Reply:
    """What the principal may do, action by action."""
    name = request.form["PolicySourceArn"].rpartition("/")[2]
    backend = iam_backends[ACCOUNT]["aws"]
    if name not in backend.users:
        raise ApiError("NoSuchEntity", f"The user with name {name} cannot be found.", 404)
    user = backend.users[name]
    policies = [*user.managed_policies.values(), *user.policies.values()]
    context = {
        request.form[f"ContextEntries.member.{n}.ContextKeyName"]: request.form[
            f"ContextEntries.member.{n}.ContextKeyValues.member.1"
        ]
        for n in range(1, 10)
        if f"ContextEntries.member.{n}.ContextKeyName" in request.form
    }
    actions = request.members("ActionNames")
    return Reply(
        200, _answer({one: _decide(policies, one, context) for one in actions}), "text/xml"
    )


def _decide(policies: list[Any], action: str, context: dict[str, str]) -> str:
    """Statement by statement: moto takes an allowing one whose condition fails for a denial."""
    found = {
        statement["Effect"]
        for policy in policies
        for statement in IAMPolicy(policy)._policy_json["Statement"]
        if IAMPolicyStatement({**statement, "Effect": "Allow"}).is_action_permitted(
            action, "*", None, context
        )
        is PermissionResult.PERMITTED
    }
    if "Deny" in found:
        return "explicitDeny"
    return "allowed" if "Allow" in found else "implicitDeny"


def _answer(decisions: dict[str, str]) -> bytes:
    members = "".join(
        f"<member><EvalActionName>{action}</EvalActionName><EvalResourceName>*</EvalResourceName>"
        f"<EvalDecision>{decision}</EvalDecision></member>"
        for action, decision in decisions.items()
    )
    return (
        '<SimulatePrincipalPolicyResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/">'
        "<SimulatePrincipalPolicyResult><IsTruncated>false</IsTruncated>"
        f"<EvaluationResults>{members}</EvaluationResults></SimulatePrincipalPolicyResult>"
        "<ResponseMetadata><RequestId>lab</RequestId></ResponseMetadata>"
        "</SimulatePrincipalPolicyResponse>"
    ).encode()
