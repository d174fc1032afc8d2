"""A demo whose second check fails, in lines written by hand: the payload needs nothing of ours."""

import json
import os
import sys

LINES = (
    {"check": "adds", "outcome": "passed", "value": 4, "unit": "1", "tolerance": 0},
    {"check": "converges", "outcome": "failed", "value": 0.5, "reason": "loss went up"},
    {"metric": "step", "samples": [1.5, 1.25], "unit": "ms", "direction": "lower"},
    {"degraded": "fell back to the CPU"},
)
with open(os.environ["SEATRIAL_EVENTS"], "a") as events:
    events.writelines(json.dumps(line) + "\n" for line in LINES)
print("demo: 1 of 2 checks failed")
sys.exit(3)
