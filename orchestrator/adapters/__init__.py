"""Adapters: each implements a port and translates its technology's errors."""
