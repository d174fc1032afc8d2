"""Port of a workspace: an attempt's folder on a machine, and its agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol

from orchestrator.domain.evidence import EvidenceBatch
from orchestrator.domain.machine import Endpoint


class Workspace(Protocol):
    """Operations of the flow on a machine.

    Every method raises ShellError if the machine cannot be reached, and another MachineError if
    it refuses the request.
    """

    def put_agent(self) -> str:
        """Ship the agent unless the machine has it; return the agent's digest."""
        ...

    def put_archive(
        self,
        kind: Literal["payloads", "wheels"],
        digest: str,
        chunks: Callable[[], Iterable[bytes]],
    ) -> bool:
        """Ship an archive (kind ``payloads`` or ``wheels``); False if it was there before."""
        ...

    def probe(self, candidates: Sequence[str]) -> Mapping[str, object]:
        """Return the machine's properties and interpreters."""
        ...

    def ready(self) -> Mapping[str, object]:
        """Return readiness: cloud-init, package locks, device drivers."""
        ...

    def start(self, attempt: str, plan: Mapping[str, object], secrets: Mapping[str, str]) -> None:
        """Start the agent, detached, unless the agent runs or has ended."""
        ...

    def pull(
        self, attempt: str, *, events_offset: int, log_offset: int, limit_bytes: int
    ) -> EvidenceBatch | None:
        """Return new evidence; None if the machine has no such attempt."""
        ...

    def stop(self, attempt: str, reason: str, *, kill: bool = False) -> None:
        """Ask the agent to stop the jobs; with `kill`, end every process of the attempt."""
        ...

    def bundle(self, attempt: str) -> bytes | None:
        """Return a tar of the attempt's artifacts; None if the machine has no such attempt."""
        ...

    def close(self, attempt: str) -> None:
        """End every process of the attempt and remove its folder."""
        ...

    def disconnect(self) -> None:
        """Close the connection; processes on the machine continue."""
        ...


OpenWorkspace = Callable[[Endpoint], Workspace]
"""Opens a workspace without connecting before the first call."""
