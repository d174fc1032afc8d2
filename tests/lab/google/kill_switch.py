"""Cloud Run of the lab: the kill switch's file as a server of its own, and its timer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.e2e.home import eventually
from tests.lab.google.tpu_rest import TpuRest
from tests.ssh_hosts import free_port

_LIMIT_S = 60.0


class KillSwitch:
    """A container of Cloud Run, with what it is deployed with and nothing of this computer's."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/"

    def fire(self) -> tuple[int, dict[str, Any]]:
        """As if the timer's time had come: the status and what was done."""
        try:
            with urlopen(Request(self._url, method="POST", data=b""), timeout=_LIMIT_S) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, json.load(error)

    def is_up(self) -> bool:
        try:
            urlopen(self._url, timeout=30).close()
        except HTTPError:
            return True  # it answers, and has nothing to get
        except OSError:
            return False
        return True


@contextmanager
def deployed(
    container: dict[str, Any], *, compute: str, tpu: str, folder: Path, **environment: str
) -> Iterator[KillSwitch]:
    """Start a container as `services.create` was told to.

    Args:
        container: As in the service's template: ``command``, ``args``, ``env``.
        compute: The emulated Compute Engine, ``http://host:port``.
        tpu: The emulated Cloud TPU, ``host:port``.
        folder: Its working directory.
        environment: What else it is started with.
    """
    port = free_port()
    command = [*container["command"], *container.get("args", ())]
    command[0] = sys.executable if command[0].startswith("python") else command[0]
    given = {one["name"]: one["value"] for one in container.get("env", ())}
    with TpuRest(tpu) as rest:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={
                **given,
                **environment,
                "PORT": str(port),
                "COMPUTE_ENDPOINT": compute,
                "TPU_ENDPOINT": rest.endpoint_url,
                "GCE_METADATA_HOST": rest.host,
                "PATH": "/usr/bin:/bin",
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            switch = KillSwitch(port)
            eventually(switch.is_up)
            yield switch
        finally:
            process.kill()
            process.wait(60)
