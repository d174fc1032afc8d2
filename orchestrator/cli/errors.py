"""Errors of the command line, as messages with exit codes."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.domain.document_problems import InvalidDocumentError, Problem

PASSED = 0
FAILED = 1
USAGE = 2
AUTHENTICATION = 4
NO_VERDICT = 5
WAITED_TOO_LONG = 7
DETACHED = 130


class RefusedError(Exception):
    """The wiring failed; the text is written for a person."""


class CliError(Exception):
    """An error that a person can fix; printed without a traceback."""

    def __init__(self, *lines: str, code: int = USAGE) -> None:
        """`lines` are whole sentences for standard error; `code` is the exit code."""
        super().__init__("\n".join(lines))
        self.lines = lines
        self.code = code


class NoControllerError(CliError):
    """No controller answered; trying again may help."""

    was_sent = False
    """Whether the request may have arrived, so that the controller may be acting on it."""


class EmptyHomeError(CliError):
    """Nothing can be read: no controller has used the home yet."""


_GATEWAY = frozenset({502, 503, 504})


def is_out_of_reach(error: CliError) -> bool:
    """Whether no controller answered: none was reached, or a proxy said that it reached none."""
    gateway = isinstance(error, RefusalError) and error.status in _GATEWAY
    return gateway or isinstance(error, NoControllerError)


def _code(status: int) -> int:
    if status in (401, 403):
        return AUTHENTICATION
    return NO_VERDICT if status >= 500 else USAGE


class RefusalError(CliError):
    """The controller answered with a problem document."""

    def __init__(self, status: int, lines: Sequence[str], errors: Sequence[str] = ()) -> None:
        """`errors` are messages about places in a file, with their position."""
        super().__init__(*(errors or lines), code=_code(status))
        self.status = status


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
