"""Notifications by HTTP."""
