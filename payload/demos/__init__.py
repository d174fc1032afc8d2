"""Demonstrations of torchbridge."""
