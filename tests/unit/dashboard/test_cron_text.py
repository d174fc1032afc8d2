"""Cron expressions in words."""

from __future__ import annotations

import pytest

from orchestrator.dashboard.pages.schedules import cron_words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 2 * * *", "every day at 02:00"),
        ("30 1 * * 1-5", "on working days at 01:30"),
        ("30 1 * * MON-FRI", "on working days at 01:30"),
        ("0 4 * * 0", "on Sundays at 04:00"),
        ("0 4 * * 7", "on Sundays at 04:00"),
        ("5 6 * * mon,thu", "on Mondays and Thursdays at 06:05"),
        ("0 2,14 * * *", "every day at 02:00 and 14:00"),
        ("*/30 * * * *", "every 30 minutes"),
        ("15 * * * *", "every hour at :15"),
        ("0 */6 * * *", "every 6 hours at :00"),
        ("* * * * *", "every minute"),
        ("0 3 1 * *", "on day 1 of every month at 03:00"),
        ("0 3 1 1 *", ""),
        ("0 3 L * *", ""),
        ("0 3 * * 1#2", ""),
        ("1-5 3 * * *", ""),
        ("0 2 1 * 1", ""),
        ("nonsense", ""),
    ],
)
def test_words(expression: str, words: str) -> None:
    assert cron_words(expression) == words
