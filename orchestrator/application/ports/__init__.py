"""Ports of the operations: protocols of everything outside."""
