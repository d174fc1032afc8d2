"""An attempt's folder on a machine, and the agent in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol

from orchestrator.domain.evidence import EvidenceBatch
from orchestrator.domain.machine import Endpoint


class Workspace(Protocol):
    """What the flow asks of a machine.

    Every method raises ShellError when the machine cannot be spoken to, and another MachineError
    when it answers that it cannot do what was asked.
    """

    def put_agent(self) -> str:
        """Ship the agent unless it is there; return its digest."""
        ...

    def put_archive(
        self,
        kind: Literal["payloads", "wheels"],
        digest: str,
        chunks: Callable[[], Iterable[bytes]],
    ) -> bool:
        """Ship an archive (kind ``payloads`` or ``wheels``); False if it was there already."""
        ...

    def probe(self, candidates: Sequence[str]) -> Mapping[str, object]:
        """What the machine is, and which interpreters it has."""
        ...

    def ready(self) -> Mapping[str, object]:
        """How far the machine is with itself: cloud-init, package locks, device drivers."""
        ...

    def start(self, attempt: str, plan: Mapping[str, object], secrets: Mapping[str, str]) -> None:
        """Start the agent, detached, unless it runs or has ended."""
        ...

    def pull(
        self, attempt: str, *, events_offset: int, log_offset: int, limit_bytes: int
    ) -> EvidenceBatch | None:
        """New evidence; None if the machine knows no such attempt."""
        ...

    def stop(self, attempt: str, reason: str, *, kill: bool = False) -> None:
        """Ask the agent to stop the jobs; with `kill`, end every process of the attempt."""
        ...

    def bundle(self, attempt: str) -> bytes | None:
        """A tar of the attempt's artifacts; None if the machine knows no such attempt."""
        ...

    def close(self, attempt: str) -> None:
        """End every process of the attempt and remove its folder."""
        ...

    def disconnect(self) -> None:
        """Drop the connection; what runs on the machine goes on."""
        ...


OpenWorkspace = Callable[[Endpoint], Workspace]
"""Opens no connection until the first call."""
