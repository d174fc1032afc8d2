"""Lists the installed distributions that have the subject's name, as the jobs find them.

``importlib.metadata`` reads the first one. A payload that is the subject mostly ships no metadata,
so that the metadata of an earlier release in the interpreter are read instead.
"""

from __future__ import annotations

import os
import re
from typing import Dict, List, Mapping, NamedTuple, Optional

from . import interpreters, job_env
from .attempt_context import AttemptContext, JobRunner
from .environment_facts import Asker
from .evidence_text import JsonValue
from .plan import PlanProduct

_TIMEOUT_S = 60.0
_LIST = """
import importlib.util
try:
    module = importlib.util.find_spec(normal(sys.argv[1]))
except Exception:
    module = None
found = {os.path.realpath(one.info): one.version for one in distributions(sys.argv[1])}
"""
_ANSWER = '{"found": found, "module": module.origin if module else None}'


class SubjectMetadata(NamedTuple):
    """Metadata and module that jobs find under the subject's name."""

    versions: Mapping[str, str]
    """Versions by the path of their metadata, in the order of the path."""
    module: str
    """File that an import of the subject's name would load; empty if there is none."""

    def facts(self) -> Dict[str, JsonValue]:
        """Return the fields of the ``environment`` event."""
        rows: List[JsonValue] = [
            {"version": version, "metadata": path} for path, version in self.versions.items()
        ]
        return {"subject_metadata": rows, "subject_module": self.module or None}

    def warning(self, product: PlanProduct, *, is_payload: bool) -> str:
        """Return a warning about versions other than the subject's; empty if there are none.

        Args:
            product: The subject.
            is_payload: Whether the payload is the subject, and no wheel.
        """
        found = [(version, f"{version} in {path}") for path, version in self.versions.items()]
        own = _plain(product.version)
        others = [text for version, text in found if _plain(version) != own]
        if not others:
            return ""
        module = f", imported from {self.module}" if self.module else ""
        wheel = ", or name a wheel as the subject" if is_payload else ""
        return (
            f"the subject is {product.name} {product.version}{module}, and its jobs find metadata"
            f" of another version: {', '.join(others)}. importlib.metadata reads {found[0][1]}."
            f" Fix: take the other versions out of the payload and of the interpreter{wheel}"
        )


def find(context: AttemptContext, runner: JobRunner) -> Optional[SubjectMetadata]:
    """Return the metadata found with each ``PYTHONPATH`` of a job; None if no subject is named."""
    product = context.plan.product
    if product is None:
        return None
    jobs = context.plan.jobs
    envs = [
        job_env.for_job(runner.variables, job=job, attempt=context.attempt, secrets={})
        for job in jobs
    ]
    ways = {env.get("PYTHONPATH"): env for env in envs or [dict(runner.variables)]}
    versions: Dict[str, str] = {}
    module = ""
    for env in ways.values():
        asker = Asker(context.attempt, env, runner.user.account, context.heartbeat.check)
        found = _ask(product.name, asker)
        for path, version in found.versions.items():
            versions.setdefault(_shown(path, context), version)
        module = module or (_shown(found.module, context) if found.module else "")
    return SubjectMetadata(versions, module)


def _ask(name: str, asker: Asker) -> SubjectMetadata:
    program = interpreters.packages_program() + _LIST
    answer = asker.ask(interpreters.answering(program, _ANSWER), name, timeout_s=_TIMEOUT_S)
    told = interpreters.extract(answer.text) if answer.ok else None
    versions, module = (told["found"], told["module"]) if told is not None else ({}, None)
    assert isinstance(versions, dict)
    return SubjectMetadata({path: str(one) for path, one in versions.items()}, str(module or ""))


def _plain(version: str) -> str:
    """Return a version in lower case without "v", local part and trailing ``.0``."""
    return re.sub(r"(\.0)+$", "", version.partition("+")[0].strip().lower().lstrip("v"))


def _shown(path: str, context: AttemptContext) -> str:
    """Return a path relative to the payload if it is in it."""
    below = os.path.relpath(os.path.realpath(path), os.path.realpath(context.attempt.payload))
    return path if below.startswith(os.pardir) else below
