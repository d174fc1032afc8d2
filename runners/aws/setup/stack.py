"""The CloudFormation stack that holds the controllers' policy and the kill switch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from orchestrator.domain.cloud_account import AccountCheck, CheckLevel, SetupDocument
from orchestrator.domain.machine import ConfigError, ProviderError
from runners.aws import tagging
from runners.aws.sdk import Answer, AwsAccount
from runners.aws.setup import permissions
from runners.aws.setup.permissions import PermissionCheck

DEFAULT_REGION = "us-east-1"
CODE = Path(__file__).with_name("end_expired.py")
PARTS = (
    "a managed IAM policy with what controllers need",
    "the kill switch: a Lambda function, called every 5 minutes by an EventBridge rule",
    "the function's IAM role, which may end only what carries the project's tag",
    "its log group, kept for 30 days",
    "EC2's service-linked role for spot instances, unless it is there",
)
_MISSING = "does not exist"
_UNCHANGED = "No updates are to be performed"


def stack_name(project: str) -> str:
    """Return the name of the project's stack in the account."""
    return f"seatrial-account-{project}"


def template(project: str, templates: Path) -> str:
    """Return the CloudFormation template, as YAML."""
    environment = Environment(
        loader=FileSystemLoader(templates / "cloud_account"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - neither YAML nor Python is escaped as HTML
        keep_trailing_newline=True,
    )
    return environment.get_template("aws.yaml.j2").render(
        project=project,
        controller_policy=_json(permissions.controller(project), 8),
        kill_switch_policy=_json(permissions.kill_switch(project), 12),
        code=indent(CODE.read_text(encoding="utf-8").rstrip(), " " * 10),
    )


def _json(statements: tuple[permissions.Statement, ...], columns: int) -> str:
    text = json.dumps(permissions.policy(statements), indent=2)
    return indent(text, " " * columns)


class AwsAccountSetup:
    """Implements `orchestrator.domain.cloud_account.AccountSetup`."""

    def __init__(self, settings: Mapping[str, str], templates: Path) -> None:
        """Store the settings without a request.

        Args:
            settings: ``project``.
            templates: The folder that holds ``cloud_account/``.
        """
        self._project = settings.get("project") or "seatrial"
        self._templates = templates
        self._account = AwsAccount()

    @property
    def _stack(self) -> str:
        return stack_name(self._project)

    @property
    def _region(self) -> str:
        """The region that the AWS CLI would use; the kill switch ends machines of all regions."""
        return self._account.region() or DEFAULT_REGION

    def document(self) -> SetupDocument:
        """Return the template and the account that it applies to. Raises ProviderError."""
        who = self._account.read("sts", self._region, "get_caller_identity")
        return SetupDocument(
            file_name=f"{self._stack}.yaml",
            text=template(self._project, self._templates),
            parts=PARTS,
            account=f"AWS account {who['Account']}, as {who['Arn']}, in {self._region}",
        )

    def apply(self) -> Iterator[str]:
        """Create the stack, or update it. Raises ProviderError."""
        yield self._spot_role()
        yield self._update() if self._found() else self._create()
        yield self._first_call()
        yield (
            f"controllers need the policy {self._output('ControllerPolicy')}: `aws iam "
            "attach-user-policy --user-name NAME --policy-arn "
            f"{self._output('ControllerPolicy')}`, or attach-role-policy"
        )

    def remove(self) -> Iterator[str]:
        """Delete the stack. The spot role stays: others may use it. Raises ProviderError."""
        if self._found() is None:
            yield f"there is no stack {self._stack} in {self._region}"
            return
        self._ask("delete_stack", StackName=self._stack)
        self._wait("stack_delete_complete")
        yield f"deleted the stack {self._stack} in {self._region}, and all it made"

    def check(self) -> Iterator[AccountCheck]:
        """Yield the check of each permission, of the spot role, and of the kill switch."""
        yield from PermissionCheck(self._account, self._region, self._project).run()
        yield self._check_stack()

    def _check_stack(self) -> AccountCheck:
        name, command = "kill switch", "seatrial bootstrap aws"
        try:
            found = self._found()
        except ProviderError as error:
            return AccountCheck(CheckLevel.WARN, name, f"not known: {error}")
        if found is None:
            text = f"there is none in {self._region}: what a dead controller leaves is not ended"
            return AccountCheck(CheckLevel.WARN, name, text, command)
        status = str(found["StackStatus"])
        if not status.endswith("_COMPLETE") or status.startswith(("DELETE", "ROLLBACK")):
            text = f"the stack {self._stack} is {status}"
            return AccountCheck(CheckLevel.FAIL, name, text, command)
        return AccountCheck(CheckLevel.OK, name, f"the stack {self._stack} is {status}")

    def _found(self) -> Answer | None:
        try:
            return self._stacks()[0]
        except ProviderError as error:
            if _MISSING in str(error):
                return None
            raise

    def _stacks(self) -> list[Answer]:
        answer = self._account.read(
            "cloudformation", self._region, "describe_stacks", StackName=self._stack
        )
        return list(answer["Stacks"])

    def _create(self) -> str:
        self._ask("create_stack", **self._wanted(), OnFailure="DELETE")
        self._wait("stack_create_complete")
        return f"created the stack {self._stack} in {self._region}"

    def _update(self) -> str:
        try:
            self._ask("update_stack", **self._wanted())
        except ProviderError as error:
            if _UNCHANGED in str(error):
                return f"the stack {self._stack} in {self._region} is up to date"
            raise
        self._wait("stack_update_complete")
        return f"updated the stack {self._stack} in {self._region}"

    def _wanted(self) -> dict[str, Any]:
        return {
            "StackName": self._stack,
            "TemplateBody": template(self._project, self._templates),
            "Capabilities": ["CAPABILITY_IAM"],
            "Tags": [{"Key": tagging.PROJECT, "Value": self._project}],
        }

    def _ask(self, operation: str, **parameters: object) -> Answer:
        return self._account.create(
            "cloudformation", self._region, operation, what=self._stack, **parameters
        )

    def _wait(self, waiter: str) -> None:
        try:
            self._account.wait("cloudformation", self._region, waiter, StackName=self._stack)
        except ProviderError as error:
            raise type(error)(
                f"{error}; `aws cloudformation describe-stack-events --stack-name {self._stack} "
                f"--region {self._region}` says why",
                code=error.code,
            ) from error

    def _output(self, key: str) -> str:
        outputs = self._stacks()[0].get("Outputs", ())
        return next(str(one["OutputValue"]) for one in outputs if one["OutputKey"] == key)

    def _first_call(self) -> str:
        """Call the function once to find missing permissions at setup; return a summary."""
        name = self._output("KillSwitch")
        answer = self._account.create(
            "lambda", self._region, "invoke", what=name, FunctionName=name
        )
        said = json.loads(answer["Payload"].read() or b"null")
        if "FunctionError" in answer:
            raise ConfigError(f"the kill switch {name} failed at its first call: {said}")
        ended, denied = said["ended"], said["denied"]
        text = f"called the kill switch once: {len(ended)} ended, {said['running']} not expired"
        return text + (f"; not allowed to read {', '.join(denied)}" if denied else "")

    def _spot_role(self) -> str:
        service = permissions.SPOT_SERVICE
        try:
            self._account.create(
                "iam", self._region, "create_service_linked_role", AWSServiceName=service
            )
        except ProviderError as error:
            if error.code == "InvalidInput":  # IAM's code where the role exists
                return f"{permissions.SPOT_ROLE} is there"
            raise
        return f"created {permissions.SPOT_ROLE}"
