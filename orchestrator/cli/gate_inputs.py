"""Reads the inputs of gate commands: policy files, finished runs, the chosen verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.cli.errors import (
    FAILED,
    NO_VERDICT,
    PASSED,
    WAITED_TOO_LONG,
    CliError,
)
from orchestrator.cli.read_file import read_document
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session
from orchestrator.client.errors import WaitedTooLongError
from orchestrator.client.seatrial import Seatrial
from orchestrator.domain.gate.verdict import Decision, VerdictLine
from orchestrator.domain.run_record import RunResponse

WITH_EXCEPTIONS = 10
_LARGEST_BYTES = 1 << 19
_LARGEST_BUNDLE_BYTES = 1 << 26
_SUFFIXES = (".yaml", ".yml", ".json")


def exit_code(decision: Decision, *, strict: bool) -> int:
    """Return the exit code of a decision."""
    if decision is Decision.PASS_WITH_EXCEPTIONS:
        return WITH_EXCEPTIONS if strict else PASSED
    return {Decision.PASS: PASSED, Decision.FAIL: FAILED}.get(decision, NO_VERDICT)


def policy_text(policy: str) -> str | None:
    """Return the text of a policy file; None for the name of a gate. Raises CliError."""
    path = Path(policy)
    if not path.is_file() and not policy.endswith(_SUFFIXES) and "/" not in policy:
        return None
    return read_document(path, "policy", limit_bytes=_LARGEST_BYTES)


def sent_policy(session: Session, policy: str) -> tuple[str, dict[str, str]]:
    """Return a gate's name, and the part of a request body that contains the policy.

    `policy` is a policy file or a gate's name; for a name that part is empty. Raises CliError.
    """
    text = policy_text(policy)
    if text is None:
        return policy, {}
    name = session.wiring.documents.read_policy(text, policy).metadata.name
    return name, {"policy": text, "name": policy[-200:]}


def finished_runs(
    session: Session, client: Seatrial, names: Sequence[str], *, minutes: float | None, waits: bool
) -> list[str]:
    """Wait until runs are finished; return their ids. Raises CliError with code 7 on a time-out."""

    def say(run: RunResponse) -> None:
        session.say(f"run {run.id} is {run.state}: waiting for it to finish")

    found = [client.run(name).record for name in names]
    clock = session.wiring.clock
    begin = clock.now()
    for run in found:
        if run.is_finished or not waits:
            continue
        waited_s = (clock.now() - begin).total_seconds()
        limit_s = minutes * 60 - waited_s if minutes is not None else None
        try:
            client.wait(run.id, limit_s=limit_s, on_wait=say)
        except WaitedTooLongError as error:
            text = f"{error} `--no-wait` decides on what is there now."
            raise CliError(text, code=WAITED_TOO_LONG) from None
    return [run.id for run in found]


def newest_verdict(client: Seatrial, gate: str) -> VerdictLine | None:
    """Return the gate's newest verdict; None without any."""
    return next(iter(client.verdicts(gate, limit=1).records), None)


def meant_verdict(session: Session, client: Seatrial, gate: str, named: str) -> str:
    """Return the id of the named verdict, or of the gate's newest one, which is printed.

    Return an empty text if the gate has no verdict.
    """
    newest = None if named else newest_verdict(client, gate)
    if newest is None:
        return named
    session.say(f"{newest.id}, the newest verdict: {one_line(newest.summary)}")
    return newest.id


def no_verdict(gate: str) -> CliError:
    """Return the error for a gate without verdicts."""
    return CliError(f"the gate {gate!r} has no verdict yet: `seatrial gate check {gate}`")


def write_file(path: Path, text: str) -> None:
    """Write a file atomically. Raises CliError."""
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(text.encode())
        part.replace(path)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}") from None


def read_file(path: Path) -> bytes:
    """Return a file's bytes, up to the size of a signed verdict. Raises CliError."""
    try:
        with path.open("rb") as file:
            found = file.read(_LARGEST_BUNDLE_BYTES + 1)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}") from None
    if len(found) > _LARGEST_BUNDLE_BYTES:
        raise CliError(f"{path} is larger than {_LARGEST_BUNDLE_BYTES} bytes: no signed verdict is")
    return found
