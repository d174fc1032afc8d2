"""Benchmarks of Seatrial itself: each module is one, run by `python -m benchmarks.NAME`."""
