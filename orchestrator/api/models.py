"""What every JSON object of the API has in common, and how money and short texts are written."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

_PLAIN = r"^[^\x00-\x1f\x7f]*$"
Word = Annotated[str, Field(max_length=300, pattern=_PLAIN)]
"""One line, without control characters; may be empty."""
Filled = Annotated[str, Field(min_length=1, max_length=300, pattern=_PLAIN)]
"""The same, not empty."""
Usd = Annotated[Decimal, PlainSerializer(lambda usd: format(usd, "f"), return_type=str)]
"""Decimal text, never in exponent form."""


class ResponseModel(BaseModel):
    """A JSON object that the API answers with."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class RequestModel(BaseModel):
    """A JSON object that a client sends; a key that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
