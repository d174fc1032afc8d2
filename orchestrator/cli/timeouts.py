"""How long commands wait, and how often they ask again: seconds."""

from __future__ import annotations

CONTROLLER_START_LIMIT_S = 60.0
"""Longest start of a controller in the background."""
CONTROLLER_POLL_S = 0.1
"""Seconds between two looks for a controller that is starting."""
RUN_POLL_LONGEST_S = 5.0
"""Longest time between two polls of a watched run without events."""
RUN_POLL_SHORTEST_S = 1.0
"""Shortest time between two polls of a watched run: each reads all of its cells."""
LOG_POLL_S = 0.5
"""Seconds between two reads of a followed log."""
WATCHED_LOG_POLL_S = 1.0
"""Seconds between two reads of the log of a watched run, which grows without events."""
RECONNECT_S = 1.0
"""Seconds before a broken stream of events is opened again."""
NO_ANSWER_LIMIT_S = 300.0
"""Longest time without an answer of the controller while a run is watched."""
RETEST_POLL_S = 0.5
"""Seconds between two polls of a retest of a bisection."""
INVENTORY_POLL_S = 10.0
"""Seconds between two inventories of the emergency stop."""
REPORT_LIMIT_S = 10.0
"""Longest wait for the report of a run that has ended."""
REPORT_POLL_S = 0.1
"""Seconds between two looks for the report."""
