"""Watching a run until it is finished, interrupted or timed out."""
