"""What every JSON object of the API has in common, and how money and short texts are written."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

_PLAIN = r"^[^\x00-\x1f\x7f]*$"
Word = Annotated[str, Field(max_length=300, pattern=_PLAIN)]
"""One line, without control characters; may be empty."""
Filled = Annotated[str, Field(min_length=1, max_length=300, pattern=_PLAIN)]
"""The same, not empty."""
Usd = Annotated[Decimal, PlainSerializer(lambda usd: format(usd, "f"), return_type=str)]
"""Decimal text, never in exponent form."""


def documented(*records: type) -> None:
    """Have these dataclasses, which are answered as they are, described as completely as answers.

    The text under a field is its description, and every field is always there.
    """
    config = ConfigDict(
        use_attribute_docstrings=True, json_schema_serialization_defaults_required=True
    )
    for record in records:
        record.__pydantic_config__ = config  # type: ignore[attr-defined]  # pydantic reads it


class ResponseModel(BaseModel):
    """A JSON object that the API answers with."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @classmethod
    def of(cls, *records: object, **derived: object) -> Self:
        """The answer with the fields of `records` that it has too, and with what is derived.

        A field that is not derived is read from the first record that has it. Records in fields
        become the answers that the fields are declared as, in the same way.
        """
        for name, field in cls.model_fields.items():
            if name not in derived and field.alias not in derived:
                owner = next((one for one in records if hasattr(one, name)), None)
                derived[name] = getattr(owner, name)
        return cls.model_validate(derived, from_attributes=True)


class RequestModel(BaseModel):
    """A JSON object that a client sends; a key that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
