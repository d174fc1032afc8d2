"""The script of faults that every emulated cloud asks before it answers a call, and its call log.

A test writes what goes wrong; the cloud looks here at each call. Nothing here knows a cloud.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

ANY = "*"


@dataclass(frozen=True, slots=True)
class Fault:
    """How one call goes wrong.

    Attributes:
        code: The cloud's own error code; empty with ``drop`` or for a mere delay.
        message: What the cloud says with it.
        status: HTTP status (or gRPC code number, in a gRPC cloud).
        after: The call DID succeed before this is answered: the lost response.
        hold: Called before the call is carried out, or with ``after`` before it is answered; it
            returns when the call may go on.
        in_operation: The call is accepted; its long-running operation ends with this error.
        delay_s: The cloud waits so long before it answers.
        drop: The connection is closed without an answer.
        body: Answered as it is instead of a well-formed error (a gateway's HTML page).
        details: Whatever else the cloud's error carries.
    """

    code: str = ""
    message: str = ""
    status: int = 400
    after: bool = False
    in_operation: bool = False
    delay_s: float = 0.0
    drop: bool = False
    body: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    hold: Callable[[], None] | None = None

    @property
    def is_error(self) -> bool:
        """False for a fault that only delays the answer."""
        return bool(self.code or self.drop or self.body)

    def wait(self) -> None:
        """Before the call is carried out: sleep for the delay, if there is one."""
        if self.delay_s > 0:
            time.sleep(self.delay_s)
        if self.hold is not None and not self.after:
            self.hold()

    def wait_to_answer(self) -> None:
        """After the call was carried out."""
        if self.hold is not None and self.after:
            self.hold()


@dataclass(frozen=True, slots=True)
class Call:
    """One API call that a cloud received; `answer` is "ok", "dropped" or the error code."""

    at: datetime
    name: str
    where: tuple[str, ...]
    key: str
    answer: str
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Line:
    """One line of the script; an entry of None lets that call through."""

    name: str
    where: frozenset[str]
    left: list[Fault | None]
    forever: bool = False

    def fits(self, name: str, places: frozenset[str], *, is_call: bool) -> bool:
        named = self.name == name or (is_call and self.name == ANY)
        return named and self.where <= places

    def take(self) -> Fault | None:
        return self.left[0] if self.forever else self.left.pop(0)


class Faults:
    """The script. Thread-safe; lines are looked at in the order they were written."""

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._lock = threading.Lock()

    def script(
        self,
        name: str,
        faults: Iterable[Fault | None],
        *,
        where: str | Iterable[str] | None = None,
    ) -> None:
        """The next calls with this name meet these faults in order; None lets one call through.

        Args:
            name: The API's name, or ``ANY``.
            faults: One for each coming call.
            where: Zone, region or market that the call must be for; several must all fit.
        """
        with self._lock:
            self._lines.append(_Line(name, _places(where), list(faults)))

    def always(self, name: str, fault: Fault, *, where: str | Iterable[str] | None = None) -> None:
        """Every call with this name meets this fault until ``clear``."""
        with self._lock:
            self._lines.append(_Line(name, _places(where), [fault], forever=True))

    def clear(self, name: str | None = None) -> None:
        """Forget the script, or the lines of one name."""
        with self._lock:
            self._lines = [line for line in self._lines if name and line.name != name]

    def take(self, name: str, places: Iterable[str] = (), *, is_call: bool = True) -> Fault | None:
        """The fault that this call meets, used up, or None.

        Args:
            name: The API's name.
            places: Everything the call is for: its region, zone, market.
            is_call: False for what is no API call but scripted all the same (how a machine dies):
                the lines for ``ANY`` do not mean it.
        """
        known = frozenset(places)
        with self._lock:
            self._lines = [line for line in self._lines if line.left]
            for line in self._lines:
                if line.fits(name, known, is_call=is_call):
                    return line.take()
        return None

    @property
    def unused(self) -> int:
        """How many scripted faults no call has met (a test asserts 0: its fault did happen)."""
        with self._lock:
            return sum(len(line.left) for line in self._lines if not line.forever)


def _places(where: str | Iterable[str] | None) -> frozenset[str]:
    if where is None:
        return frozenset()
    return frozenset([where]) if isinstance(where, str) else frozenset(where)
