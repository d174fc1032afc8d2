"""`seatrial bootstrap aws` and `doctor aws` against an emulated account, by the real boto3.

The stack is made by the emulation's CloudFormation, and what ends the machines is the code that it
deployed: run as it is, by its timer, with no controller and no provider anywhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import boto3
import pytest
import yaml

from orchestrator.assets import asset_dir
from orchestrator.domain.cloud_account import AccountCheck, CheckLevel
from orchestrator.domain.machine import CredentialsError
from runners.aws import AwsProvider
from runners.aws.setup import permissions, stack
from runners.aws.setup.stack import AwsAccountSetup
from tests import cli_answers
from tests.integration.aws_world import NOW, account, ask, context
from tests.lab.aws_cloud import AwsCloud
from tests.unit.cli import in_process
from tests.unit.cli.in_process import Cli

cli = in_process.cli  # the fixture

ENDING = ("shutting-down", "terminated")
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsCloud]:
    with account(monkeypatch) as cloud:
        yield cloud


@pytest.fixture
def setup() -> AwsAccountSetup:
    return AwsAccountSetup({"project": "lab"}, asset_dir("templates"))


def launched(token: str, *, hours: float, project: str = "lab") -> str:
    """An instance whose controller is not there any more."""
    request = ask(AwsProvider(context(project=project)), token=token)
    ends = NOW + timedelta(hours=hours)
    tags = {**request.tags, "seatrial-expires-at": str(int(ends.timestamp()))}
    fields = {name: getattr(request, name) for name in ("token", "place", "platform", "login")}
    again = type(request)(**fields, tags=tags, expires_at=ends)
    return AwsProvider(context(project=project)).launch(again).id.rpartition("/")[2]


def test_what_no_controller_ends_is_ended_by_the_account_itself(
    cloud: AwsCloud, setup: AwsAccountSetup
) -> None:
    told = list(setup.apply())
    assert "called the kill switch once: 0 ended, 0 not expired" in told
    expired, running = launched("a-1-1", hours=-1), launched("b-1-1", hours=1)
    stranger = launched("c-1-1", hours=-1, project="other")
    assert cloud.functions.fire_timers() == 1
    assert [cloud.state(one) in ENDING for one in (expired, running, stranger)] == [1, 0, 0]
    said = json.loads(cloud.functions.runs[-1].stdout.splitlines()[0])
    assert [one.rpartition("/")[2] for one in said["ended"]][-1] == expired


def test_disks_addresses_and_interfaces_that_outlive_their_instance(
    cloud: AwsCloud, setup: AwsAccountSetup
) -> None:
    list(setup.apply())
    ec2 = boto3.client("ec2", region_name="eu-west-1")
    tags = [
        {"Key": "seatrial-project", "Value": "lab"},
        {"Key": "seatrial-expires-at", "Value": "1"},
    ]

    def tagged(kind: str) -> list[dict[str, object]]:
        return [{"ResourceType": kind, "Tags": tags}]

    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    ec2.create_volume(AvailabilityZone="eu-west-1a", Size=1, TagSpecifications=tagged("volume"))
    ec2.create_network_interface(SubnetId=subnet, TagSpecifications=tagged("network-interface"))
    ec2.allocate_address(TagSpecifications=tagged("elastic-ip"))
    assert {kind for kind, _ in cloud.alive()} >= {"volume", "network-interface", "address"}
    cloud.functions.fire_timers()
    assert cloud.functions.runs[-1].returncode == 0, cloud.functions.runs[-1].stderr
    assert cloud.alive() == []


def test_a_region_that_may_not_be_read_does_not_keep_the_others(
    cloud: AwsCloud, setup: AwsAccountSetup
) -> None:
    list(setup.apply())
    expired = launched("a-1-1", hours=-1)
    cloud.refuse("DescribeSpotInstanceRequests", "UnauthorizedOperation", where="eu-central-1")
    cloud.functions.fire_timers()
    assert cloud.state(expired) in ENDING
    said = json.loads(cloud.functions.runs[-1].stdout.splitlines()[0])
    assert list(said["denied"]) == ["eu-central-1"]


def test_what_cannot_be_ended_fails_the_function_and_is_named(
    cloud: AwsCloud, setup: AwsAccountSetup
) -> None:
    list(setup.apply())
    expired = launched("a-1-1", hours=-1)
    cloud.refuse("TerminateInstances", "UnauthorizedOperation")
    cloud.functions.fire_timers()
    failed = cloud.functions.runs[-1]
    assert failed.returncode == 1
    assert expired in failed.stderr
    cloud.functions.fire_timers()
    assert cloud.state(expired) in ENDING


def test_it_is_made_once_updated_and_removed_by_one_command(
    cloud: AwsCloud, setup: AwsAccountSetup
) -> None:
    assert "created the stack seatrial-account-lab in us-east-1" in list(setup.apply())
    again = list(setup.apply())
    assert any("the stack seatrial-account-lab in us-east-1" in line for line in again)
    assert list(setup.remove()) == [
        "deleted the stack seatrial-account-lab in us-east-1, and all it made"
    ]
    assert cloud.functions.fire_timers() == 0
    assert list(setup.remove()) == ["there is no stack seatrial-account-lab in us-east-1"]


@pytest.fixture
def user(cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch) -> str:
    """Signs in as an IAM user without permissions, from now on."""
    iam = boto3.client("iam", region_name="us-east-1")
    iam.create_user(UserName="seatrial")
    key = iam.create_access_key(UserName="seatrial")["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    return "seatrial"


def levels(checks: list[AccountCheck]) -> Mapping[str, CheckLevel]:
    return {check.name: check.level for check in checks}


def test_doctor_names_each_missing_permission_and_the_command_that_grants_them(
    user: str, setup: AwsAccountSetup
) -> None:
    iam = boto3.client("iam", region_name="us-east-1")
    checks = list(setup.check())
    found = levels(checks)
    assert found["ec2:RunInstances"] is CheckLevel.FAIL
    assert found["kill switch"] is CheckLevel.WARN
    command = next(check.command for check in checks if check.name == "policy")
    words, _, document = command.partition(" --policy-document ")
    assert words == "aws iam put-user-policy --user-name seatrial --policy-name seatrial"
    # the command is right: what it grants is what was missing
    iam.put_user_policy(UserName=user, PolicyName="seatrial", PolicyDocument=document.strip("'"))
    iam.create_service_linked_role(AWSServiceName="spot.amazonaws.com")
    found = levels(list(setup.check()))
    assert {name for name, level in found.items() if level is not CheckLevel.OK} == {"kill switch"}


def test_the_policy_of_the_stack_is_all_that_doctor_asks_for(
    user: str, setup: AwsAccountSetup
) -> None:
    told = list(setup.apply())
    arn = (
        told[-1].removeprefix("controllers need the policy ").partition(":`")[0].partition(": `")[0]
    )
    boto3.client("iam", region_name="us-east-1").attach_user_policy(UserName=user, PolicyArn=arn)
    found = levels(list(setup.check()))
    assert {name: level for name, level in found.items() if level is not CheckLevel.OK} == {}


def test_without_the_simulator_dry_runs_are_tried_and_doubt_is_told(
    user: str, cloud: AwsCloud, setup: AwsAccountSetup
) -> None:
    cloud.refuse("SimulatePrincipalPolicy", "AccessDenied")
    cloud.refuse("RunInstances", "UnauthorizedOperation")
    checks = {check.name: check for check in setup.check()}
    assert checks["ec2:RunInstances"].level is CheckLevel.FAIL
    assert checks["ec2:TerminateInstances"].level is CheckLevel.WARN
    assert checks["ec2:TerminateInstances"].text.startswith("unknown")
    assert "put-user-policy" in checks["iam:SimulatePrincipalPolicy"].command


def test_the_commands_of_a_person(
    cloud: AwsCloud, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEATRIAL_PROJECT", "lab")
    path = tmp_path / "stack.yaml"
    # nobody can be asked: the document is written, and the account is left as it was
    assert cli("bootstrap", "aws", "-o", str(path)) == 0
    assert path.read_text() == stack.template("lab", asset_dir("templates"))
    assert "AWS account 123456789012" in cli.err
    assert "nothing was changed" in cli.err
    assert cli("bootstrap", "aws", "-o", str(path), "--yes") == 0
    assert "created the stack seatrial-account-lab in us-east-1" in cli.out
    assert cli("doctor", "aws", "--json") == 0  # nobody's policy is known here, so all is doubt
    cli_answers.check("seatrial doctor CLOUD", cli.out)
    found = {check["name"]: check["level"] for check in json.loads(cli.out)}
    assert found["kill switch"] == "OK"
    assert found["iam:SimulatePrincipalPolicy"] == "WARN"
    assert cli("bootstrap", "aws", "--remove", "--yes") == 0
    assert "deleted the stack" in cli.out
    assert cli("bootstrap", "azure") == 2
    assert "there is no cloud 'azure'" in cli.err


def test_credentials_that_aws_does_not_know(cloud: AwsCloud, setup: AwsAccountSetup) -> None:
    cloud.refuse("GetCallerIdentity", "InvalidClientTokenId")
    with pytest.raises(CredentialsError):
        list(setup.check())


def test_the_template_passes_cfn_lint(tmp_path: Path) -> None:
    path = tmp_path / "stack.yaml"
    path.write_text(stack.template("lab", asset_dir("templates")), encoding="utf-8")
    linter = Path(sys.executable).with_name("cfn-lint")
    done = subprocess.run([linter, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_deployed_code_is_the_file() -> None:
    class Loader(yaml.SafeLoader):
        """Reads CloudFormation's short forms as plain text."""

    Loader.add_multi_constructor("!", lambda loader, _, node: loader.construct_scalar(node))
    made = yaml.load(stack.template("lab", asset_dir("templates")), Loader)
    code = made["Resources"]["KillSwitchFunction"]["Properties"]["Code"]["ZipFile"]
    assert code == stack.CODE.read_text(encoding="utf-8")


def test_the_documented_policy_is_the_one_that_is_checked() -> None:
    text = (DOCS / "policies" / "aws-controller.json").read_text(encoding="utf-8")
    assert json.loads(text) == permissions.policy(permissions.controller("seatrial"))
