"""Ends all resources of a Seatrial project whose ``seatrial-expires-at`` tag is in the past.

The kill switch of an AWS account. A timer in that account calls `handler`, so that it works while
no controller runs. This file is deployed as it is: it needs boto3 and nothing of Seatrial.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import boto3
from botocore.exceptions import BotoCoreError, ClientError

PROJECT, EXPIRES = "seatrial-project", "seatrial-expires-at"


class Kind(NamedTuple):
    """A kind of resource: how it is listed and ended."""

    describe: str
    key: str
    id: str
    end: str
    parameter: str
    """Parameter of `end` for the id; it takes a list if its name ends with ``s``."""
    left: tuple[str, tuple[str, ...]] | None = None
    """The filter for resources that can be ended now."""


KINDS = (
    # An open request would become another instance.
    Kind(
        "describe_spot_instance_requests",
        "SpotInstanceRequests",
        "SpotInstanceRequestId",
        "cancel_spot_instance_requests",
        "SpotInstanceRequestIds",
        ("state", ("open", "active")),
    ),
    Kind(
        "describe_instances",
        "Reservations",
        "InstanceId",
        "terminate_instances",
        "InstanceIds",
        ("instance-state-name", ("pending", "running", "stopping", "stopped")),
    ),
    # These three are attached to an instance until it is gone: then a later call finds them free.
    Kind(
        "describe_volumes",
        "Volumes",
        "VolumeId",
        "delete_volume",
        "VolumeId",
        ("status", ("available",)),
    ),
    Kind(
        "describe_network_interfaces",
        "NetworkInterfaces",
        "NetworkInterfaceId",
        "delete_network_interface",
        "NetworkInterfaceId",
        ("status", ("available",)),
    ),
    Kind(
        "describe_addresses",
        "Addresses",
        "AllocationId",
        "release_address",
        "AllocationId",
    ),
)


def handler(event: object, context: object) -> dict[str, Any]:
    """Run the kill switch as AWS Lambda. Raises RuntimeError if something could not be ended."""
    done = end_expired(os.environ["SEATRIAL_PROJECT"], time.time())
    print(json.dumps(done))
    if done["failed"]:
        raise RuntimeError(f"could not end {json.dumps(done['failed'])}")
    return done


def end_expired(project: str, now: float) -> dict[str, Any]:
    """End every expired resource in every enabled region.

    Args:
        project: The value of the tag ``seatrial-project``.
        now: Seconds since 1970.

    Returns:
        ``ended``: ids; ``running``: how many are not expired yet; ``failed``: ids with the reason;
        ``denied``: regions that may not be read, with the reason.
    """
    done: dict[str, Any] = {"ended": [], "running": 0, "failed": {}, "denied": {}}
    regions = _regions()
    for region in regions:
        try:
            _end_in(region, project, now, done)
        except (BotoCoreError, ClientError) as error:
            done["denied"][region] = str(error)
    if len(done["denied"]) == len(regions):
        done["failed"]["every region"] = next(iter(done["denied"].values()))
    return done


def _regions() -> list[str]:
    enabled = [{"Name": "opt-in-status", "Values": ["opt-in-not-required", "opted-in"]}]
    ec2 = boto3.client("ec2", region_name=os.environ["AWS_REGION"])
    return sorted(one["RegionName"] for one in ec2.describe_regions(Filters=enabled)["Regions"])


def _end_in(region: str, project: str, now: float, done: dict[str, Any]) -> None:
    ec2 = boto3.client("ec2", region_name=region)
    for kind in KINDS:
        for found in _found(ec2, kind, project):
            name = f"{region}/{found[kind.id]}"
            expires = _tags(found).get(EXPIRES, "")
            if not expires.isdigit():
                # What the machines of a project share has no such tag, and is free of charge.
                continue
            if int(expires) > now:
                done["running"] += 1
                continue
            try:
                _end(ec2, kind, found[kind.id])
                done["ended"].append(name)
            except (BotoCoreError, ClientError) as error:
                done["failed"][name] = str(error)


def _found(ec2: Any, kind: Kind, project: str) -> Iterator[dict[str, Any]]:
    filters = [{"Name": f"tag:{PROJECT}", "Values": [project]}]
    if kind.left is not None:
        filters.append({"Name": kind.left[0], "Values": list(kind.left[1])})
    if not ec2.can_paginate(kind.describe):
        answers = [getattr(ec2, kind.describe)(Filters=filters)]
    else:
        answers = list(ec2.get_paginator(kind.describe).paginate(Filters=filters))
    for answer in answers:
        for found in answer[kind.key]:
            if "AssociationId" not in found:
                yield from found.get("Instances", [found])


def _tags(resource: dict[str, Any]) -> dict[str, str]:
    listed = resource.get("Tags") or resource.get("TagSet") or []
    return {tag["Key"]: tag["Value"] for tag in listed}


def _end(ec2: Any, kind: Kind, resource: str) -> None:
    value = [resource] if kind.parameter.endswith("s") else resource
    try:
        getattr(ec2, kind.end)(**{kind.parameter: value})
    except ClientError as error:
        # Gone meanwhile.
        if not error.response["Error"]["Code"].endswith(".NotFound"):
            raise
