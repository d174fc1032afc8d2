"""Computes the gate's false alarms and power for benchmarks, as tables."""
