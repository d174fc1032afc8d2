"""A report's model as JSON: unrounded numbers, money as decimal text, times in UTC."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal

from reports.model.values import Absent, ReportModel


def render_json(model: ReportModel) -> str:
    """The whole model, with what was not measured as ``{"not_measured": reason}``."""
    return json.dumps(_plain(model), ensure_ascii=True, indent=2, allow_nan=False) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, Absent):
        return {"not_measured": value.reason}
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, float) and not math.isfinite(value):
        return {"not_measured": "not a finite number"}
    return value
