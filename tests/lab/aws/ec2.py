"""EC2 in front of moto: the calls that the lab answers itself, and those it only watches."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tests.lab.aws.emulation import Emulation
from tests.lab.aws.launch import Launches
from tests.lab.aws.lifecycle import USER, Lifecycle, Rented, SpotRequest
from tests.lab.aws.prices import Prices
from tests.lab.aws.wire import ApiError, Reply, Request, ec2_reply

# Answers that never change while a cloud runs: moto takes seconds for some of them.
_CONSTANT = frozenset(
    {
        "DescribeInstanceTypes",
        "DescribeInstanceTypeOfferings",
        "DescribeAvailabilityZones",
        "DescribeRegions",
    }
)
_LOOKS = frozenset({"DescribeInstances", "DescribeInstanceStatus"})
_CHANGES = frozenset({"TerminateInstances", "RebootInstances"})
_cached: dict[tuple[str, bytes], Reply] = {}


@dataclass(slots=True)
class Ec2:
    """The EC2 API of every region; the caller holds the cloud's lock and has ticked."""

    emulation: Emulation
    lifecycle: Lifecycle
    launches: Launches
    prices: Prices
    hides_from_changes: bool = False
    _own: dict[str, Callable[[Request], Reply]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._own = {
            "RunInstances": self.launches.run,
            "TerminateInstances": self._terminate,
            "RebootInstances": self._reboot,
            "GetConsoleOutput": self._console,
            "DeleteSecurityGroup": self._delete_group,
            "DescribeSpotPriceHistory": self._spot_prices,
            "DescribeSpotInstanceRequests": self._spot_requests,
            "CancelSpotInstanceRequests": self._cancel_spot,
            "GetEbsDefaultKmsKeyId": self._default_key,
        }

    def answer(self, request: Request) -> Reply:
        """One call.

        Raises:
            ApiError: As EC2 refuses.
        """
        self.emulation.region(request.region)
        if request.name in _CONSTANT:
            return self._constant(request)
        own = self._own.get(request.name, self.emulation.forward)
        if request.name not in _LOOKS | _CHANGES:
            return own(request)
        if request.name in _CHANGES and not self.hides_from_changes:
            return own(request)
        with self._hiding(request):
            return own(request)

    def _default_key(self, request: Request) -> Reply:
        return ec2_reply(request.name, {"kmsKeyId": "alias/aws/ebs"})

    def _constant(self, request: Request) -> Reply:
        key = (request.region, request.body)
        if key not in _cached:
            reply = self.emulation.forward(request)
            if reply.status != 200:
                return reply
            _cached[key] = reply
        return _cached[key]

    @contextmanager
    def _hiding(self, request: Request) -> Iterator[None]:
        """Keep the newest instances out of the answer, as an eventually consistent cloud does."""
        now = self.lifecycle.clock()
        hidden = [
            each
            for each in self.lifecycle.rented.values()
            if each.region == request.region and each.is_hidden(now)
        ]
        ids = {each.id for each in hidden}
        kept = self.emulation.region(request.region).reservations
        away = {
            key: reservation
            for key, reservation in kept.items()
            if ids & {instance.id for instance in reservation.instances}
        }
        for key in away:
            del kept[key]
        try:
            yield
        finally:
            kept.update(away)
            if request.name == "DescribeInstances":
                for each in hidden:
                    each.looks_left = max(0, each.looks_left - 1)

    def _named(self, request: Request) -> list[Rented]:
        ids = request.numbered("InstanceId")
        known = self.emulation.instances(request.region)
        missing = [each for each in ids if each not in known]
        if missing:
            which = (
                f"ID '{missing[0]}' does"
                if len(missing) == 1
                else (f"IDs '{', '.join(missing)}' do")
            )
            raise ApiError("InvalidInstanceID.NotFound", f"The instance {which} not exist")
        return [self.lifecycle.rented[each] for each in ids]

    def _terminate(self, request: Request) -> Reply:
        chosen = self._named(request)
        for each in chosen:
            if each.instance.disable_api_termination:
                raise ApiError(
                    "OperationNotPermitted",
                    f"The instance '{each.id}' may not be terminated. Modify its "
                    "'disableApiTermination' instance attribute and try again.",
                )
        if request.form.get("DryRun", "").lower() == "true":
            raise ApiError(
                "DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412
            )
        rows = []
        for each in chosen:
            before = _as_state(each)
            self.lifecycle.end(each, USER)
            rows.append(
                {"instanceId": each.id, "currentState": _as_state(each), "previousState": before}
            )
        return ec2_reply(request.name, {"instancesSet": rows})

    def _reboot(self, request: Request) -> Reply:
        for each in self._named(request):
            if each.state in ("shutting-down", "terminated"):
                raise ApiError(
                    "IncorrectInstanceState",
                    f"The instance '{each.id}' is not in a state from which it can be rebooted.",
                )
            if each.has_machine:
                self.lifecycle.machines.reboot(each.id)
        return ec2_reply(request.name, {"return": True})

    def _console(self, request: Request) -> Reply:
        asked = request.form.get("InstanceId", "")
        if asked not in self.lifecycle.rented:
            raise ApiError(
                "InvalidInstanceID.NotFound", f"The instance ID '{asked}' does not exist"
            )
        each = self.lifecycle.rented[asked]
        text = self.lifecycle.machines.console(asked) if each.has_machine else ""
        return ec2_reply(
            request.name,
            {
                "instanceId": asked,
                "timestamp": self.lifecycle.clock(),
                "output": base64.b64encode(text.encode()).decode(),
            },
        )

    def _delete_group(self, request: Request) -> Reply:
        group = request.form.get("GroupId", "")
        backend = self.emulation.region(request.region)
        by_interface = any(
            group in {each.id for each in eni.group_set} for eni in backend.enis.values()
        )
        if by_interface or any(self.lifecycle.using_group(group)):
            raise ApiError("DependencyViolation", f"resource {group} has a dependent object")
        return self.emulation.forward(request)

    def _spot_prices(self, request: Request) -> Reply:
        return self.prices.history(request, self.lifecycle.clock())

    def _spot_requests(self, request: Request) -> Reply:
        ids = request.numbered("SpotInstanceRequestId")
        known = self.lifecycle.spot_requests
        missing = [each for each in ids if each not in known]
        if missing:
            raise ApiError(
                "InvalidSpotInstanceRequestID.NotFound",
                f"The spot instance request ID '{missing[0]}' does not exist",
            )
        rows = [
            _as_spot_request(each)
            for each in known.values()
            if each.zone.startswith(request.region)
            and (not ids or each.id in ids)
            and _passes(each, request.filters())
        ]
        return ec2_reply(request.name, {"spotInstanceRequestSet": rows})

    def _cancel_spot(self, request: Request) -> Reply:
        rows = []
        for asked in request.numbered("SpotInstanceRequestId"):
            known = self.lifecycle.spot_requests.get(asked)
            if known is None:
                raise ApiError(
                    "InvalidSpotInstanceRequestID.NotFound",
                    f"The spot instance request ID '{asked}' does not exist",
                )
            if known.state == "active":
                known.state, known.status = "cancelled", "request-canceled-and-instance-running"
            rows.append({"spotInstanceRequestId": asked, "state": known.state})
        return ec2_reply(request.name, {"spotInstanceRequestSet": rows})


def _as_state(rented: Rented) -> dict[str, Any]:
    state = rented.instance._state
    return {"code": state.code, "name": state.name}


def _passes(spot: SpotRequest, filters: dict[str, list[str]]) -> bool:
    values = {"state": spot.state, "instance-id": spot.instance_id, "status-code": spot.status}
    values |= {f"tag:{key}": value for key, value in spot.tags.items()}
    for name, wanted in filters.items():
        if not any(fnmatchcase(values.get(name, ""), each) for each in wanted):
            return False
    return True


def _as_spot_request(spot: SpotRequest) -> dict[str, Any]:
    return {
        "spotInstanceRequestId": spot.id,
        "type": "one-time",
        "state": spot.state,
        "status": {
            "code": spot.status,
            "updateTime": spot.status_at or spot.made_at,
            "message": spot.status,
        },
        "instanceId": spot.instance_id,
        "launchedAvailabilityZone": spot.zone,
        "productDescription": "Linux/UNIX",
        "createTime": spot.made_at,
        "launchSpecification": {"instanceType": spot.instance_type},
        "instanceInterruptionBehavior": "terminate",
        "tagSet": [{"key": key, "value": value} for key, value in spot.tags.items()],
    }
