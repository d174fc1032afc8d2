"""What every JSON object of the API has in common, and how money is written."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer

Usd = Annotated[Decimal, PlainSerializer(lambda usd: format(usd, "f"), return_type=str)]
"""Decimal text, never in exponent form."""


class Shape(BaseModel):
    """A JSON object of the API."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
