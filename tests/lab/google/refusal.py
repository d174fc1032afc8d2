"""A refusal of the lab's Cloud TPU."""

from __future__ import annotations

import grpc


class RpcError(Exception):
    """What the service refuses a call with; `quota` names the limit, for a QuotaFailure."""

    def __init__(self, code: grpc.StatusCode, message: str, quota: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.quota = code, message, quota
