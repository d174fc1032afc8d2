"""The REST door of the lab's Cloud TPU, as `tpu.googleapis.com` has one beside gRPC.

Only what the kill switch calls; each call goes through the real client to the gRPC door, so that
faults that are scripted there are met here too.
"""

from __future__ import annotations

from typing import Any

import grpc
from google.api_core import exceptions as api
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.protobuf import json_format

from tests.lab.google.descriptors import check_query
from tests.lab.google.front import ApiError, Json, Request, RestFront, utc_now

_ONE = "/v2/projects/<project>/locations/<location>"
ROUTES = {
    "nodes.list": f"GET {_ONE}/nodes",
    "nodes.delete": f"DELETE {_ONE}/nodes/<id>",
    "queuedResources.list": f"GET {_ONE}/queuedResources",
    "queuedResources.delete": f"DELETE {_ONE}/queuedResources/<id>",
    "token": "GET /computeMetadata/v1/instance/service-accounts/default/token",
}


class TpuRest(RestFront):
    """Opens beside a `TpuCloud`; also hands out tokens, as the metadata server does."""

    def __init__(self, target: str) -> None:
        super().__init__(ROUTES, utc_now)
        channel = grpc.insecure_channel(target)
        self._client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))

    @property
    def host(self) -> str:
        """``host:port``, for ``GCE_METADATA_HOST``."""
        return self.endpoint_url.removeprefix("http://")

    def stop(self) -> None:
        super().stop()
        self._client.transport.close()

    def answer(self, request: Request) -> Json:
        if request.name == "token":
            return {"access_token": "lab", "expires_in": 3599, "token_type": "Bearer"}
        check_query(request, tpu_v2)
        try:
            return self._forward(request)
        except api.GoogleAPICallError as error:
            status = error.grpc_status_code.name if error.grpc_status_code else "UNKNOWN"
            raise ApiError(status, error.message or "", int(error.code or 500)) from error

    def _forward(self, request: Request) -> Json:
        parent = f"projects/{request.path['project']}/locations/{request.path['location']}"
        collection, _, verb = request.name.partition(".")
        if verb == "list":
            page = {"parent": parent, "page_token": request.query.get("pageToken", "")}
            ask = {"nodes": self._client.list_nodes}.get(
                collection, self._client.list_queued_resources
            )
            answer = next(ask(request=page, timeout=20).pages)
            return _json(answer)
        name = f"{parent}/{collection}/{request.path['id']}"
        if collection == "nodes":
            return {"name": self._client.delete_node(name=name, timeout=20).operation.name}
        force = request.query.get("force") == "true"
        order = tpu_v2.DeleteQueuedResourceRequest(name=name, force=force)
        return {"name": self._client.delete_queued_resource(order, timeout=20).operation.name}


def _json(answer: Any) -> Json:
    found: Json = json_format.MessageToDict(type(answer).pb(answer))
    return found
