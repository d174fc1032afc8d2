"""Run pytest many times in forks of one process that has the libraries of the product loaded.

Each line of standard input is a request: `arguments` of pytest, `variables` of the environment,
`output` (a file) and `cpu_s`, the processor time that it may take, however busy the machine is (a
test that waits for ever is ended by pytest's own limit). Each line of the answer is pytest's exit
status, below 0 where a signal ended it. Nothing of a run remains after its answer.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
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
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    contained.end_descendants()
    return code


def run(request: dict[str, Any]) -> None:
    """In the fork: pytest, with its output in a file."""
    resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_s"], request["cpu_s"] + 5))
    os.environ.update(request["variables"])
    with Path(request["output"]).open("wb") as output, Path(os.devnull).open("rb") as nothing:
        for number, file in ((0, nothing), (1, output), (2, output)):
            os.dup2(file.fileno(), number)
        code = pytest.main(request["arguments"])
        sys.stdout.flush()
        os._exit(int(code))


if __name__ == "__main__":
    main()
