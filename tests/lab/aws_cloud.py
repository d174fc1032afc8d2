"""An emulated AWS on the loopback: what the real boto3 clients meet when they speak to the cloud.

moto stands behind; in front of it is what moto lacks and a launcher depends on: idempotent tokens,
states that follow a machine, quotas, prices, images, eventual consistency, and every refusal.
"""

from __future__ import annotations

import socket
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from werkzeug.serving import WSGIRequestHandler, make_server

from tests.lab.aws import functions, iam, service_model
from tests.lab.aws.codes import THROTTLES, aws_fault
from tests.lab.aws.ec2 import Ec2
from tests.lab.aws.emulation import Emulation
from tests.lab.aws.images import Images, asks_for_images
from tests.lab.aws.launch import DEATH, Launches
from tests.lab.aws.lifecycle import Lifecycle
from tests.lab.aws.meter import Meter, Metered, leftovers
from tests.lab.aws.prices import Prices
from tests.lab.aws.quotas import Quotas
from tests.lab.aws.rates import RateBuckets
from tests.lab.aws.wire import ApiError, Reply, Request, error_reply, parse
from tests.lab.cloud_facts import durations, rows
from tests.lab.faults import Call, Fault, Faults
from tests.lab.machines import Machines, NoMachines

CREDENTIALS = {"aws_access_key_id": "lab", "aws_secret_access_key": "lab"}
_TICK_S = 0.2
_NO_FAULT = Fault()
_PHRASES = {200: "OK", 400: "Bad Request", 403: "Forbidden", 500: "Internal Server Error"}


def _utc_now() -> datetime:
    return datetime.now(UTC)


class _Handler(WSGIRequestHandler):
    # One call per connection: nothing lingers when the server is closed.
    protocol_version = "HTTP/1.0"

    def log(self, *_: Any) -> None:
        """Say nothing: `AwsCloud.calls` is the log."""

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        """Close without an answer: a fault asked for it, or the client is gone."""


class AwsCloud:
    """One AWS account, all regions, at `endpoint_url`. Only one may run in a process at a time."""

    def __init__(
        self, *, machines: Machines | None = None, clock: Callable[[], datetime] = _utc_now
    ) -> None:
        self.machines: Machines = NoMachines() if machines is None else machines
        self.clock = clock
        self.calls: list[Call] = []
        self.faults = Faults()
        self.images = Images()
        self.quotas = Quotas()
        self.rates = RateBuckets()
        self.prices = Prices()
        self.functions = functions.Functions()
        self.devices: dict[str, str] = {}
        self.silent: set[str] = set()
        """Regions where EC2 does not answer."""
        self.crashes: list[str] = []
        self._lock = threading.RLock()
        self._emulation = Emulation(self.images)
        self._meter = Meter()
        self._lifecycle = Lifecycle(
            self._emulation, self.machines, self._meter, lambda: self.clock(), self.devices
        )
        self._launches = Launches(
            self._emulation, self._lifecycle, self.images, self.prices, self.quotas, self.faults
        )
        self._ec2 = Ec2(self._emulation, self._lifecycle, self._launches, self.prices)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._server: Any = None

    def start(self) -> Self:
        """Open the account and listen on a free port of the loopback."""
        self._emulation.start()
        self._server = make_server(
            "127.0.0.1", 0, self._wsgi, threaded=True, request_handler=_Handler
        )
        self.functions.endpoint_url = self.endpoint_url
        for target in (lambda: self._server.serve_forever(poll_interval=0.05), self._tick_on):
            thread = threading.Thread(target=target, name="aws-cloud", daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def stop(self) -> None:
        """Close the account; the machines that still run are the lab's to remove.

        Raises:
            RuntimeError: The lab itself broke while it answered: no test may pass over that.
        """
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join(10)
        self._lifecycle.wait_for_removals(60)
        self._emulation.stop()
        self.raise_crashes()

    def raise_crashes(self) -> None:
        """Fail where the lab itself broke while it answered.

        Raises:
            RuntimeError: With what happened in each call.
        """
        if self.crashes:
            raise RuntimeError("the emulated AWS broke:\n" + "\n".join(self.crashes))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def endpoint_url(self) -> str:
        """Where boto3 is pointed to, for every service."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def invisible_for_looks(self) -> int:
        """For how many DescribeInstances a new instance is not there yet."""
        return self._launches.looks

    @invisible_for_looks.setter
    def invisible_for_looks(self, looks: int) -> None:
        self._launches.looks = looks

    @property
    def lag_s(self) -> float:
        """For how long, by the cloud's clock, a new instance is not there yet."""
        return self._launches.lag_s

    @lag_s.setter
    def lag_s(self, lag_s: float) -> None:
        self._launches.lag_s = lag_s

    @property
    def hides_from_changes(self) -> bool:
        """Whether an invisible instance cannot be terminated either (NotFound, and it lives on)."""
        return self._ec2.hides_from_changes

    @hides_from_changes.setter
    def hides_from_changes(self, hides: bool) -> None:
        self._ec2.hides_from_changes = hides

    def follow_facts(self) -> None:
        """Be as slow, as late in showing what is new, and as silent as the table of facts says."""
        takes = durations("aws")
        self.lag_s = takes["visible"]
        self.silent |= rows("aws", "silent").keys()
        self._lifecycle.pending_s = takes["pending"]
        self._lifecycle.shutting_down_s = takes["shutting-down"]

    @property
    def shutting_down_s(self) -> float:
        """How long an instance is shutting-down at least, by the cloud's clock."""
        return self._lifecycle.shutting_down_s

    @shutting_down_s.setter
    def shutting_down_s(self, seconds: float) -> None:
        self._lifecycle.shutting_down_s = seconds

    def give_next_public_address(self, address: str) -> None:
        """The next instance gets this address: addresses come back to strangers."""
        self._emulation.next_public_address = address

    def die_in_pending(
        self, *codes: str, where: str | Iterable[str] | None = None, after_s: float = 0.0
    ) -> None:
        """The next instances never run: they end with these StateReason codes, one each."""
        faults = [Fault(code=code, delay_s=after_s) for code in codes]
        self.faults.script(DEATH, faults, where=where)

    def refuse(
        self, name: str, *codes: str, where: str | Iterable[str] | None = None, after: bool = False
    ) -> None:
        """The next calls of this name are refused with these codes, one each."""
        self.faults.script(name, [aws_fault(code, after=after) for code in codes], where=where)

    def preempt(self, machine_id: str, *, notice_s: float = 120.0) -> None:
        """Interrupt a spot instance: the notice now, the end after it."""
        with self._lock:
            self._lifecycle.tick()
            self._lifecycle.announce(machine_id, notice_s)
            self._lifecycle.tick()

    def state(self, machine_id: str) -> str:
        """The instance's state at this moment, without a call."""
        with self._lock:
            self._lifecycle.tick()
            return self._lifecycle.rented[machine_id].state

    def alive(self) -> list[tuple[str, str]]:
        """Every resource of a client that costs money or lingers, as (kind, id)."""
        with self._lock:
            self._lifecycle.tick()
            found = list(leftovers(self._emulation))
            requests = self._lifecycle.spot_requests.values()
            open_requests = [each.id for each in requests if each.state in ("open", "active")]
        return found + [("spot-request", each) for each in open_requests]

    def billing(self) -> list[Metered]:
        """The cloud's own metering, in the order in which things began to cost."""
        with self._lock:
            self._lifecycle.tick()
            return self._meter.lines()

    def _tick_on(self) -> None:
        while not self._stopping.wait(_TICK_S):
            with self._lock:
                self._lifecycle.tick()

    def _wsgi(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        reply = self._answer(parse(environ))
        if reply is None:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError("a fault asked for it")
        phrase = _PHRASES.get(reply.status, "Answer")
        headers = [("Content-Type", reply.content_type), ("Content-Length", str(len(reply.body)))]
        start_response(f"{reply.status} {phrase}", [*headers, *reply.headers])
        return [reply.body]

    def _answer(self, request: Request) -> Reply | None:
        """The answer to one call; None for a connection that is closed instead."""
        call = self._as_call(request)
        if request.service == "ec2" and request.region in self.silent:
            self.calls.append(replace(call, answer="dropped"))
            return None
        fault = self.faults.take(request.name, call.where) or _NO_FAULT
        fault.wait()
        if fault.is_error and not fault.after:
            if request.name == "RunInstances" and fault.code and fault.code not in THROTTLES:
                self._remember(request)
            return self._fail(request, call, fault)
        reply, code = self._serve(request)
        fault.wait_to_answer()
        if fault.is_error:
            details = {**call.details, "answer lost": code}
            return self._fail(request, replace(call, details=details), fault)
        self.calls.append(replace(call, answer=code))
        return reply

    def _remember(self, request: Request) -> None:
        with self._lock, suppress(ApiError):  # the token was known with another request
            self._launches.remember(request)

    def _fail(self, request: Request, call: Call, fault: Fault) -> Reply | None:
        self.calls.append(replace(call, answer=fault.code or ("dropped" if fault.drop else "page")))
        if fault.drop:
            return None
        if fault.body:
            return Reply(fault.status, fault.body.encode(), "text/html")
        return error_reply(request, ApiError(fault.code, fault.message, fault.status))

    def _serve(self, request: Request) -> tuple[Reply, str]:
        try:
            if functions.invokes(request):  # it calls the cloud itself, so without the lock
                return self.functions.answer(request), "ok"
            with self._lock:
                self._lifecycle.tick()
                reply = self._dispatch(request)
                self._meter.look(self._emulation, self.clock())
        except ApiError as error:
            return error_reply(request, error), error.code
        except Exception:  # noqa: BLE001 - kept, answered, and raised again by `stop`
            self.crashes.append(f"{request.name}: {traceback.format_exc()}")
            return error_reply(request, ApiError("InternalError", "the lab broke", 500)), "broken"
        return reply, "ok" if reply.status == 200 else _code_in(reply)

    def _dispatch(self, request: Request) -> Reply:
        if request.service == "ec2":
            self.rates.take(request.region, request.name, self.clock())
        service_model.check(request)
        if request.service == "ec2":
            return self._ec2.answer(request)
        if request.service == "servicequotas":
            return self.quotas.answer(request)
        if request.service == "pricing":
            return self.prices.answer(request)
        if request.service == "ssm" and asks_for_images(request):
            return self.images.answer(request)
        return iam.answer(request) or self._emulation.forward(request)

    def _as_call(self, request: Request) -> Call:
        where: tuple[str, ...] = (request.region, request.service)
        key = request.form.get("InstanceId.1", "")
        with self._lock:
            if request.name == "RunInstances":
                order = self._launches.read(request)
                where, key = (*order.places, request.service), order.token
            elif key in self._lifecycle.rented:
                rented = self._lifecycle.rented[key]
                where = (request.region, rented.zone, rented.market, request.service)
        details = {key: value for key, value in request.form.items() if key != "UserData"}
        return Call(
            at=self.clock(),
            name=request.name,
            where=where,
            key=key,
            answer="",
            details=details or {key: str(value) for key, value in request.data.items()},
        )


def _code_in(reply: Reply) -> str:
    """The error code in an answer that moto made."""
    text = reply.body.decode(errors="replace")
    if "<Code>" in text:
        return text.partition("<Code>")[2].partition("</Code>")[0]
    return text.partition('"__type":')[2].partition('"')[2].partition('"')[0] or str(reply.status)
