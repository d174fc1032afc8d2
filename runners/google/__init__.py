"""Shared parts of the Google Cloud providers: login, endpoints, firewall rules, prices, names.

Only this package and the providers that use it import Google's libraries.
"""
