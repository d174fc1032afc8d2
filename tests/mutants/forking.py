"""Run pytest many times in forks of one process that has the libraries of the product loaded.

Each line of standard input is a request: `arguments` of pytest, `variables` of the environment,
`output` (a file) and `limit_s`. Each line of the answer is pytest's exit status, or -1 where the
limit ended it. Nothing of a run remains after its answer.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import contained

# Half of what a short run costs is their import. None is a plugin of pytest: it rewrites these.
LIBRARIES = (
    "alembic",
    "cryptography.x509",
    "dbos",
    "defusedxml",
    "fastapi.testclient",
    "ftfy",
    "ijson",
    "jinja2",
    "markdown_it",
    "packaging.requirements",
    "paramiko",
    "prometheus_client",
    "psycopg",
    "pydantic_settings",
    "rapidfuzz",
    "rfc8785",
    "rich.live",
    "ruamel.yaml",
    "scipy.stats",
    "sqlalchemy",
    "sse_starlette",
    "standardwebhooks",
    "typer",
    "uvicorn",
)
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Answer requests until there are no more."""
    for name in LIBRARIES:
        importlib.import_module(name)
    contained.prctl(PR_SET_CHILD_SUBREAPER, 1)
    for line in sys.stdin:
        print(status(json.loads(line)), flush=True)


def status(request: dict[str, Any]) -> int:
    """Run pytest in a fork, and end all that it started."""
    child = os.fork()
    if child == 0:
        run(request)
    deadline = time.monotonic() + request["limit_s"]
    while (found := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.05)
    contained.end_descendants()
    return os.waitstatus_to_exitcode(found[1]) if found != (0, 0) else -1


def run(request: dict[str, Any]) -> None:
    """In the fork: pytest, with its output in a file."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(request["variables"])
    with Path(request["output"]).open("wb") as output, Path(os.devnull).open("rb") as nothing:
        for number, file in ((0, nothing), (1, output), (2, output)):
            os.dup2(file.fileno(), number)
        code = pytest.main(request["arguments"])
        sys.stdout.flush()
        os._exit(int(code))


if __name__ == "__main__":
    main()
