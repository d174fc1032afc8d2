"""Cron expressions in words, where they are of the kinds that people write."""

from __future__ import annotations

import re

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_SHORT = {name[:3].upper(): number for number, name in enumerate(_DAYS)}
_STEP = re.compile(r"\*/([1-9][0-9]?)")
_RANGE = re.compile(r"(\w+)-(\w+)")


def cron_words(expression: str) -> str:
    """``every day at 02:00``; empty where it is too special for words."""
    fields = expression.split()
    if len(fields) != 5:
        return ""
    minute, hour, day, month, weekday = fields
    if month != "*" or (day != "*" and weekday != "*"):
        return ""
    days = _days(day, weekday)
    times = _times(minute, hour)
    if not days or not times:
        return ""
    return times if days == "every day" and times.startswith("every") else f"{days} {times}"


def _times(minute: str, hour: str) -> str:
    step = _STEP.fullmatch(minute)
    if hour == "*" and minute == "*":
        return "every minute"
    if hour == "*" and step:
        return f"every {step[1]} minutes"
    if hour == "*" and minute.isdigit():
        return f"every hour at :{int(minute):02}"
    every = _STEP.fullmatch(hour)
    if every and minute.isdigit():
        return f"every {every[1]} hours at :{int(minute):02}"
    hours = hour.split(",")
    if minute.isdigit() and all(one.isdigit() for one in hours):
        return "at " + " and ".join(f"{int(one):02}:{int(minute):02}" for one in hours)
    return ""


def _days(day: str, weekday: str) -> str:
    if day == "*" and weekday == "*":
        return "every day"
    if weekday == "*":
        return f"on day {day} of every month" if day.isdigit() else ""
    found = _RANGE.fullmatch(weekday)
    if found:
        first, last = _number(found[1]), _number(found[2])
        if first is None or last is None:
            return ""
        return "on working days" if (first, last) == (1, 5) else f"{_DAYS[first]} to {_DAYS[last]}"
    numbers = [_number(one) for one in weekday.split(",")]
    named = [f"{_DAYS[number]}s" for number in numbers if number is not None]
    return "on " + " and ".join(named) if len(named) == len(numbers) else ""


def _number(day: str) -> int | None:
    """0 and 7 are both Sunday."""
    if day.isdigit():
        return int(day) % 7 if int(day) <= 7 else None
    return _SHORT.get(day.upper())
