"""Parses the controller's answers into records."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from orchestrator.cli.client import Json
from orchestrator.cli.errors import NO_VERDICT, CliError

T = TypeVar("T")


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    """Return the cached parser of a record, since creating it is slow."""
    return TypeAdapter(kind)


def read(kind: type[T], answer: object) -> T:
    """Parse an answer; unknown keys are ignored.

    Raises CliError with the code of no verdict, as for an outcome that only newer ones have.
    """
    try:
        found: T = _adapter(kind).validate_python(answer, extra="ignore")  # type: ignore[arg-type]  # a class has a hash
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CliError(
            f"the controller's answer is not understood: {place}: {first['msg']}",
            "Are the controller and this command of the same version?",
            code=NO_VERDICT,
        ) from None
    return found


def read_items(kind: type[T], answer: Json) -> tuple[T, ...]:
    """Parse every item of a list. Raises CliError."""
    found: tuple[T, ...] = read(tuple[kind, ...], answer.get("items"))  # type: ignore[valid-type]
    return found
