"""Ends all resources of a Seatrial project whose ``seatrial-expires-at`` label is in the past.

The kill switch of a Google Cloud project: instances, disks and addresses of Compute Engine, queued
resources and nodes of Cloud TPU. A timer in that project posts to this server, so that it works
while no controller runs. This file is deployed as it is: it needs Python and nothing else.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

PROJECT, EXPIRES = "seatrial-project", "seatrial-expires-at"
TIMEOUT_S = 30
_COMPUTE = os.environ.get("COMPUTE_ENDPOINT", "https://compute.googleapis.com")
_TPU = os.environ.get("TPU_ENDPOINT", "https://tpu.googleapis.com")
_METADATA = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")


class Project:
    """One Seatrial project in one Google Cloud project."""

    def __init__(self, cloud_project: str, project: str) -> None:
        self._cloud = cloud_project
        self._project = project
        self._token = _token()

    def end_expired(self, now: float) -> dict[str, Any]:
        """End every expired resource in every zone.

        Args:
            now: Seconds since 1970.

        Returns:
            ``ended``: names; ``running``: how many are not expired yet; ``failed``: what could not
            be ended or listed, with the reason; ``unread``: zones that did not answer.
        """
        done: dict[str, Any] = {"ended": [], "running": 0, "failed": {}, "unread": []}
        for list_them in (self._queued, self._nodes, self._instances, self._disks, self._addresses):
            try:
                for url, labels in list_them(done):
                    self._consider(url, labels, now, done)
            except OSError as error:
                done["failed"][list_them.__name__.strip("_")] = _reason(error)
        return done

    def _consider(self, url: str, labels: dict[str, str], now: float, done: dict[str, Any]) -> None:
        expires = labels.get(EXPIRES, "")
        if labels.get(PROJECT) != self._project or not expires.isdigit():
            return
        name = url.partition("/projects/")[2].partition("?")[0]
        if int(expires) > now:
            done["running"] += 1
            return
        try:
            self._ask("DELETE", url)
            done["ended"].append(name)
        except HTTPError as error:
            if error.code != 404:  # gone meanwhile
                done["failed"][name] = _reason(error)
        except OSError as error:
            done["failed"][name] = _reason(error)

    def _queued(self, done: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
        for found in self._tpu("queuedResources", done):
            specs = found.get("tpu", {}).get("nodeSpec", [{}])
            if found.get("state", {}).get("state") != "DELETING":
                # By force: with its node.
                labels = specs[0].get("node", {}).get("labels", {})
                yield f"{_TPU}/v2/{found['name']}?force=true", labels

    def _nodes(self, done: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
        for found in self._tpu("nodes", done):
            if found.get("state") != "DELETING":
                queued = found.get("queuedResource", "")
                url = f"{_TPU}/v2/{queued}?force=true" if queued else f"{_TPU}/v2/{found['name']}"
                yield url, found.get("labels", {})

    def _tpu(self, collection: str, done: dict[str, Any]) -> Iterator[dict[str, Any]]:
        url = f"{_TPU}/v2/projects/{self._cloud}/locations/-/{collection}?pageSize=500"
        for answer in self._pages(url):
            for place in answer.get("unreachable", ()):
                done["unread"].append(f"{collection} of {place}")
            yield from answer.get(collection, ())

    def _instances(self, done: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
        yield from self._compute("instances", done)

    def _disks(self, done: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
        yield from self._compute("disks", done)

    def _addresses(self, done: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
        yield from self._compute("addresses", done)

    def _compute(
        self, collection: str, done: dict[str, Any]
    ) -> Iterator[tuple[str, dict[str, str]]]:
        start = f"{_COMPUTE}/compute/v1/projects/{self._cloud}"
        ours = quote(f'labels.{PROJECT} = "{self._project}"')
        url = f"{start}/aggregated/{collection}?filter={ours}&returnPartialSuccess=true"
        for answer in self._pages(url):
            for scope, found in answer.get("items", {}).items():
                if found.get("warning", {}).get("code") == "UNREACHABLE":
                    done["unread"].append(f"{collection} of {scope}")
                for each in found.get(collection, ()):
                    # What is in use is given back when its machine is gone.
                    if not each.get("users"):
                        yield f"{start}/{scope}/{collection}/{each['name']}", each["labels"]

    def _pages(self, url: str) -> Iterator[dict[str, Any]]:
        page = ""
        while True:
            answer = self._ask("GET", url + (f"&pageToken={quote(page)}" if page else ""))
            yield answer
            page = answer.get("nextPageToken", "")
            if not page:
                return

    def _ask(self, method: str, url: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}"}
        request = Request(url, method=method, headers=headers)  # noqa: S310 - Google's own
        with urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            said: dict[str, Any] = json.load(answer)
            return said


def _token() -> str:
    """Return an access token of the service account that runs this program."""
    url = f"http://{_METADATA}/computeMetadata/v1/instance/service-accounts/default/token"
    request = Request(url, headers={"Metadata-Flavor": "Google"})
    with urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
        return str(json.load(answer)["access_token"])


def _reason(error: OSError) -> str:
    said = error.read().decode(errors="replace")[:500] if isinstance(error, HTTPError) else ""
    return f"{error}: {said}" if said else str(error)


class Handler(BaseHTTPRequestHandler):
    """Handles the timer's requests: 200 if everything expired was ended, else 500."""

    def do_POST(self) -> None:
        """Delete what has expired; answer with JSON, 500 if something could not be deleted."""
        try:
            project = Project(os.environ["CLOUD_PROJECT"], os.environ["SEATRIAL_PROJECT"])
            done = project.end_expired(time.time())
        except OSError as error:
            done = {"failed": {"signing in": _reason(error)}}
        body = json.dumps(done).encode()
        print(body.decode(), flush=True)
        self.send_response(500 if done["failed"] else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    HTTPServer(("0.0.0.0", int(os.environ["PORT"])), Handler).serve_forever()  # noqa: S104
