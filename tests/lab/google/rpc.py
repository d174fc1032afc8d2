"""The gRPC door of the lab's Cloud TPU: one call in, its fault or its answer out."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from tests.lab.faults import Call, Fault, Faults
from tests.lab.google.messages import check_request
from tests.lab.google.refusal import RpcError

_NO_FAULT = Fault()


@dataclass(frozen=True, slots=True)
class Method:
    """One method: how its messages are read and written, and who answers it."""

    service: str
    name: str
    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]
    answer: Callable[[Any, Fault], Any]
    begins_operation: bool = False


class RpcFront:
    """A gRPC server without TLS on the loopback."""

    def __init__(
        self,
        methods: list[Method],
        places: Callable[[str, Any], tuple[str, ...]],
        clock: Callable[[], datetime],
    ) -> None:
        self.calls: list[Call] = []
        self.faults = Faults()
        self.crashes: list[str] = []
        self._methods, self._places, self._clock = methods, places, clock
        self._server: grpc.Server | None = None
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="tpu-cloud")
        self._lock = threading.Lock()
        self.port = 0

    def start(self) -> None:
        self._server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        for service in {method.service for method in self._methods}:
            found = {each.name: self._handler(each) for each in self._methods
                     if each.service == service}  # fmt: skip
            handler = grpc.method_handlers_generic_handler(service, found)
            self._server.add_generic_rpc_handlers((handler,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def stop(self) -> None:
        assert self._server is not None
        self._server.stop(0.2).wait(10)
        self._pool.shutdown(wait=True)

    def _handler(self, method: Method) -> grpc.RpcMethodHandler:
        def serve(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                return self._served(method, request)
            except RpcError as error:
                _abort(context, error)

        return grpc.unary_unary_rpc_method_handler(serve, method.read, method.write)

    def _served(self, method: Method, request: Any) -> Any:
        places = self._places(method.name, request)
        fault = self.faults.take(method.name, places) or _NO_FAULT
        fault.wait()
        if fault.in_operation and not method.begins_operation:
            self.crashes.append(f"{method.name} begins no operation that could end {fault.code}")
        if fault.is_error and not (fault.after or fault.in_operation):
            self._note(method, request, places, fault.code or "dropped")
            raise _as_error(fault)
        answer, code = self._answered(method, request, fault)
        fault.wait_to_answer()
        lost = fault.is_error and fault.after
        self._note(method, request, places, (fault.code or "dropped") if lost else code)
        if lost:
            raise _as_error(fault)
        if isinstance(answer, RpcError):
            raise answer
        return answer

    def _answered(self, method: Method, request: Any, fault: Fault) -> tuple[Any, str]:
        try:
            check_request(request)
            return method.answer(request, fault if fault.in_operation else _NO_FAULT), "ok"
        except RpcError as error:
            return error, error.code.name
        except Exception:  # noqa: BLE001 - kept, answered, and raised again by `stop`
            self.crashes.append(f"{method.name}: {traceback.format_exc()}")
            return RpcError(grpc.StatusCode.INTERNAL, "the lab broke"), "broken"

    def _note(self, method: Method, request: Any, places: tuple[str, ...], answer: str) -> None:
        details = {key: str(getattr(request, key)) for key in _DETAILS if hasattr(request, key)}
        key = next((details[each] for each in _KEYS if details.get(each)), "")
        with self._lock:
            self.calls.append(Call(self._clock(), method.name, places, key, answer, details))


_DETAILS = ("parent", "name", "node_id", "queued_resource_id", "request_id", "force")
_KEYS = ("request_id", "node_id", "queued_resource_id", "name", "parent")


def _as_error(fault: Fault) -> RpcError:
    if fault.drop:
        # What a gRPC client says of a connection that was closed under it.
        return RpcError(grpc.StatusCode.UNAVAILABLE, "Socket closed")
    details: Mapping[str, str] = fault.details
    return RpcError(grpc.StatusCode[fault.code], fault.message, details.get("quota", ""))


def _abort(context: grpc.ServicerContext, error: RpcError) -> NoReturn:
    status = status_pb2.Status(code=error.code.value[0], message=error.message)
    if error.quota:
        failure = error_details_pb2.QuotaFailure()
        failure.violations.add(subject="project:lab", description=error.message)
        packed = any_pb2.Any()
        packed.Pack(failure)
        status.details.append(packed)
    context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("abort returned")
