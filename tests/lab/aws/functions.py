"""Lambda and EventBridge of the emulated AWS: what CloudFormation deployed there is run, unchanged.

moto keeps functions and rules; here the code that it keeps is started in a process of its own, with
the function's environment, its role's place in the cloud, and nothing of this computer's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from moto.awslambda.models import lambda_backends
from moto.events.models import events_backends

from tests.lab.aws.emulation import ACCOUNT
from tests.lab.aws.wire import Reply, Request

LIMIT_S = 240
_INVOKE = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
module, _, name = sys.argv[2].rpartition(".")
answer = getattr(importlib.import_module(module), name)(json.loads(sys.argv[3]), None)
print("\\n" + json.dumps(answer))
"""


def invokes(request: Request) -> bool:
    """Whether a call asks for a function to be run."""
    return request.service == "lambda" and request.environ["PATH_INFO"].endswith("/invocations")


class Functions:
    """Runs the functions of the account."""

    def __init__(self) -> None:
        self.endpoint_url = ""
        self.environment: dict[str, str] = {}
        self.runs: list[subprocess.CompletedProcess[str]] = []

    def answer(self, request: Request) -> Reply:
        """Run the function that an Invoke call names."""
        name = request.environ["PATH_INFO"].split("/")[-2]
        done = self._run(request.region, name, {})
        said = done.stdout.strip().splitlines()[-1:] or ["null"]
        if done.returncode:
            error = json.dumps({"errorMessage": done.stderr.strip().splitlines()[-1]})
            return Reply(
                200, error.encode(), "application/json", (("X-Amz-Function-Error", "Unhandled"),)
            )
        return Reply(200, said[0].encode(), "application/json")

    def fire_timers(self) -> int:
        """As if the time of every enabled rule had come; answers how many functions were run."""
        before = len(self.runs)
        for region, backend in events_backends[ACCOUNT].items():
            for bus in backend.event_buses.values():
                for rule in bus.rules.values():
                    if rule.scheduled_expression and rule.state == "ENABLED":
                        for target in rule.targets:
                            self._run(region, target["Arn"].rpartition(":")[2], {"source": "aws"})
        return len(self.runs) - before

    def _run(self, region: str, name: str, event: dict[str, Any]) -> Any:
        function = lambda_backends[ACCOUNT][region].get_function(name)
        with TemporaryDirectory() as folder:
            with zipfile.ZipFile(BytesIO(function.code_bytes)) as code:
                code.extractall(folder)
            done = subprocess.run(
                [sys.executable, "-c", _INVOKE, folder, function.handler, json.dumps(event)],
                env={
                    **function.environment_vars,
                    **self.environment,
                    "AWS_REGION": region,
                    "AWS_ENDPOINT_URL": self.endpoint_url,
                    "AWS_ACCESS_KEY_ID": "role",
                    "AWS_SECRET_ACCESS_KEY": "role",
                    "AWS_EC2_METADATA_DISABLED": "true",
                    "PATH": "/usr/bin:/bin",
                    "HOME": str(Path(folder)),
                },
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        self.runs.append(done)
        return done
