"""Errors of the command line, as messages with exit codes."""

from __future__ import annotations

from orchestrator.client.errors import (
    RefusalError,
    SeatrialError,
    UnreadableAnswerError,
)
from orchestrator.domain.document_problems import InvalidDocumentError, Problem

PASSED = 0
FAILED = 1
USAGE = 2
AUTHENTICATION = 4
NO_VERDICT = 5
WAITED_TOO_LONG = 7
DETACHED = 130


class RefusedError(Exception):
    """An operation of the wiring failed; the text gives the reason for a person."""


class CliError(SeatrialError):
    """An error of a command; printed without a traceback."""

    def __init__(self, *lines: str, code: int = USAGE) -> None:
        """`lines` are whole sentences for standard error; `code` is the exit code."""
        super().__init__(*lines)
        self.code = code


class EmptyHomeError(CliError):
    """The home has no database yet, because no controller has used it."""


def exit_code_of(error: SeatrialError) -> int:
    """Return the exit code of a command that ends with the error."""
    match error:
        case CliError():
            return error.code
        case RefusalError(status=401 | 403):
            return AUTHENTICATION
        case RefusalError():
            return NO_VERDICT if error.status >= 500 else USAGE
        case UnreadableAnswerError():
            return NO_VERDICT
        case _:
            return USAGE


def document_error(error: InvalidDocumentError) -> CliError:
    """Format an invalid document's errors as ``file:line:column: sentence`` lines."""
    return CliError(*(located(error.name, problem) for problem in error.problems))


def located(name: str, problem: Problem) -> str:
    """Format a problem with its position."""
    path = ".".join(str(part) for part in problem.path)
    sentence = f"{path}: {problem.message}" if path else problem.message
    if problem.line is None:
        return f"{name}: {sentence}"
    return f"{name}:{problem.line}:{problem.column or 1}: {sentence}"
