"""Cloud TPU's long-running operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import grpc
from google.cloud import tpu_v2
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.rpc import status_pb2

from tests.lab.google.refusal import RpcError


@dataclass(slots=True)
class TpuOperation:
    """One operation; `error` is (gRPC code number, message), `result` a protobuf message."""

    name: str
    target: str
    verb: str
    began_at: datetime
    ended_at: datetime | None = None
    result: Any = None
    error: tuple[int, str] | None = None
    cancel_requested: bool = False

    def finish(self, at: datetime, result: Any = None) -> None:
        """It ends well, with nothing or with this; what ended already stays so."""
        if self.ended_at is None:
            self.ended_at, self.result = at, result if result is not None else empty_pb2.Empty()

    def fail(self, at: datetime, code: int, message: str) -> None:
        """It ends with this."""
        if self.ended_at is None:
            self.ended_at, self.error = at, (code, message)

    def message(self) -> operations_pb2.Operation:
        """As `operations.get` answers it."""
        said = operations_pb2.Operation(name=self.name, done=self.ended_at is not None)
        metadata = tpu_v2.OperationMetadata(
            create_time=self.began_at, end_time=self.ended_at, target=self.target, verb=self.verb,
            api_version="v2", cancel_requested=self.cancel_requested,
        )  # fmt: skip
        said.metadata.Pack(tpu_v2.OperationMetadata.pb(metadata))
        if self.error is not None:
            said.error.CopyFrom(status_pb2.Status(code=self.error[0], message=self.error[1]))
        elif self.ended_at is not None:
            said.response.Pack(self.result)
        return said


@dataclass(slots=True)
class TpuOperations:
    """All of them, and the memory of request ids."""

    known: dict[str, TpuOperation] = field(default_factory=dict)
    _tokens: dict[tuple[str, str], TpuOperation] = field(default_factory=dict)

    def begin(
        self, verb: str, parent: str, target: str, at: datetime, *, token: str = ""
    ) -> TpuOperation:
        """A new one."""
        name = f"{parent}/operations/operation-{int(at.timestamp() * 1000)}-{len(self.known):04x}"
        operation = TpuOperation(name, target, verb, at)
        self.known[name] = operation
        if token:
            self._tokens[f"{verb} {parent}", token] = operation
        return operation

    def repeated(self, verb: str, parent: str, token: str) -> TpuOperation | None:
        """What the same call with the same request id began before."""
        return self._tokens.get((f"{verb} {parent}", token)) if token else None

    def get(self, name: str) -> TpuOperation:
        """The operation, or NOT_FOUND."""
        if name not in self.known:
            raise RpcError(grpc.StatusCode.NOT_FOUND, f"Operation '{name}' was not found")
        return self.known[name]
