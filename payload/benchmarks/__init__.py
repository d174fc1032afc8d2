"""Benchmarks of torchbridge against named baselines."""
