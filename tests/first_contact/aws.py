"""The calls to AWS: 1 to 8."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from orchestrator.domain.machine import MachineState, Offers, ProviderError
from runners.aws.images import default_parameters
from runners.aws.inventory import Inventory
from runners.aws.sdk import AwsAccount
from runners.aws.setup.permissions import SPOT_ROLE
from tests.cloud_smoke.clouds import PLATFORMS
from tests.first_contact.calls import PROJECT, Contact, ContactCall, Finding, all_of
from tests.first_contact.rented import launched, looks, renting, request_for, scanned_key
from tests.platforms import as_platform

REGION = "us-east-1"
DISK_GB = int(str(PLATFORMS["aws"]["disk_gb"]))
QUOTAS = {"L-DB2E81BA": "on-demand G and VT", "L-3819A6DF": "spot G and VT"}
SMALL = {
    "provider": "aws",
    "instance_type": "t3.micro",
    "locations": (REGION,),
    "market": ("spot", "on-demand"),
    "disk_gb": DISK_GB,
}
HOLD_S, LATE_S = 180.0, 360.0


def identity(contact: Contact) -> Finding:
    answer = AwsAccount().read("sts", REGION, "get_caller_identity")
    contact.keep(1, "sts get-caller-identity", answer)
    contact.scrubber.hide(str(answer["UserId"]), "user")
    contact.scrubber.hide(str(answer["Arn"]).rpartition("/")[2], "user name")
    if str(answer["Arn"]).endswith(":root"):
        return Finding("refuted", "the credentials are the root user's: make a user for Seatrial")
    return Finding("confirmed", "boto3's chain finds credentials, and AWS takes them")


def inventory(contact: Contact) -> Finding:
    account = AwsAccount()
    regions = Inventory(account, PROJECT).regions()
    contact.keep(2, "describe-regions", regions)
    denied = []
    for region in regions:
        try:
            found = list(account.pages("ec2", region, "describe_instances", "Reservations"))
        except ProviderError as error:
            denied.append(region)
            contact.keep(2, f"describe-instances in {region}", str(error))
            continue
        contact.keep(2, f"describe-instances in {region}", {"reservations": len(found)})
    return all_of(denied, f"each of {len(regions)} enabled regions lets itself be listed")


def spot_role(contact: Contact) -> Finding:
    try:
        contact.keep(
            3, "get-role", AwsAccount().read("iam", REGION, "get_role", RoleName=SPOT_ROLE)
        )
    except ProviderError as error:
        contact.keep(3, "get-role", str(error))
        if error.code != "NoSuchEntity":
            return Finding("not shown", str(error))
        return Finding("refuted", f"{SPOT_ROLE} is not there: `seatrial bootstrap aws` makes it")
    return Finding("confirmed", f"{SPOT_ROLE} is there")


def parameters(contact: Contact) -> Finding:
    path = "/aws/service/deeplearning/ami/x86_64"
    found = {
        str(one["Name"]): str(one["Value"])
        for one in AwsAccount().pages(
            "ssm", REGION, "get_parameters_by_path", "Parameters", Path=path, Recursive=True
        )
    }
    contact.keep(4, f"get-parameters-by-path {path}", found)
    wanted = default_parameters("x86_64")
    contact.kept["images"] = [found[name] for name in wanted if name in found]
    return all_of((one for one in wanted if one not in found), f"{len(wanted)} image names exist")


def images(contact: Contact) -> Finding:
    wanted = contact.kept.get("images", [])
    if not wanted:
        return Finding("not shown", "call 4 found no image")
    answer = AwsAccount().read("ec2", REGION, "describe_images", ImageIds=wanted)
    contact.keep(5, "describe-images", answer["Images"])
    return all_of(
        (
            f"{one['Name']} ({_root_gb(one)} GB)"
            for one in answer["Images"]
            if _root_gb(one) > DISK_GB
        ),
        f"the images' root disks fit into {DISK_GB} GB",
    )


def _root_gb(image: dict[str, Any]) -> int:
    root = image.get("RootDeviceName")
    disks = [one for one in image.get("BlockDeviceMappings", ()) if one["DeviceName"] == root]
    return max((int(one.get("Ebs", {}).get("VolumeSize", 0)) for one in disks), default=0)


def quotas(contact: Contact) -> Finding:
    short = []
    for code, name in QUOTAS.items():
        answer = AwsAccount().read(
            "service-quotas", REGION, "get_service_quota", ServiceCode="ec2", QuotaCode=code
        )
        contact.keep(6, code, answer)
        if answer["Quota"]["Value"] < 4:
            short.append(f"{name} ({answer['Quota']['Value']:.0f}, ask {code} for 4)")
    return all_of(short, "there are 4 vCPUs of each G quota")


class _DryRun(AwsAccount):
    """Asks EC2 whether it would launch."""

    def create(self, service: str, region: str, operation: str, /, **given: Any) -> Any:
        more = {"DryRun": True} if operation == "run_instances" else {}
        return super().create(service, region, operation, **given, **more)


def dry_run(contact: Contact) -> Finding:
    contact.keep(
        7,
        "get-ebs-default-kms-key-id",
        AwsAccount().read("ec2", REGION, "get_ebs_default_kms_key_id"),
    )
    with renting("aws", contact, 7) as rents:
        assert isinstance(rents, Offers)
        launcher: Any = rents._launcher  # type: ignore[attr-defined]
        object.__setattr__(launcher, "account", _DryRun())
        place = rents.places(as_platform(PLATFORMS["aws"]))[0]
        request = request_for(PLATFORMS["aws"], place, contact, seconds=3600, token="contact-7")
        try:
            rents.launch(request)
        except ProviderError as error:
            contact.keep(7, f"run-instances --dry-run {place.name}", str(error))
            if error.code == "DryRunOperation":
                return Finding("confirmed", "EC2 takes the exact launch request")
            return Finding("refuted", str(error))
    return Finding("refuted", "a dry run was answered as if it were none")


def micro(contact: Contact) -> Finding:
    with renting("aws", contact, 8) as rents:
        made = launched(rents, SMALL, contact, 8, seconds=HOLD_S)
        if made is None:
            return Finding("not shown", "no t3.micro was available")
        request, machine = made
        key = ""
        assert request.login
        assert request.expires_at
        for seen in looks(rents, machine, contact, seconds=HOLD_S + LATE_S):
            contact.keep(8, "inspect", seen)
            if seen.state is MachineState.TERMINATED and contact.now() >= request.expires_at:
                return _ended(request.login.host_public_key, key, seen.ended)
            if seen.endpoint is not None and not key:
                key = scanned_key(seen.endpoint.address, seen.endpoint.port)
                contact.keep(8, "ssh-keyscan", key)
    return Finding("refuted", f"it was still there {LATE_S:.0f} s after its timer's time")


def _ended(injected: str, key: str, how: str) -> Finding:
    if not key:
        return Finding("not shown", f"ended by itself ({how}), but SSH never answered")
    same = " ".join(injected.split()[:2]) == key
    text = f"ended by itself ({how}); its host key is {'' if same else 'NOT '}the injected one"
    return Finding("confirmed" if same else "refuted", text)


CALLS = (
    ContactCall(1, "aws", "sts get-caller-identity", "credentials are found", identity),
    ContactCall(2, "aws", "the inventory of each region", "no policy denies one", inventory),
    ContactCall(3, "aws", f"iam get-role {SPOT_ROLE}", "spot may be asked for", spot_role),
    ContactCall(4, "aws", "SSM parameters of the images", "our names exist", parameters),
    ContactCall(5, "aws", "describe-images of those", "the disk is large enough", images),
    ContactCall(6, "aws", "service quotas of G instances", "one g5.xlarge fits", quotas),
    ContactCall(7, "aws", "run-instances --dry-run, g5.xlarge spot", "EC2 takes it", dry_run),
    ContactCall(
        8,
        "aws",
        "one t3.micro for three minutes",
        "the host key is injected, and the timer ends it",
        micro,
        Decimal("0.02"),
    ),
)
