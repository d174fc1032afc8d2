"""What the providers of Google Cloud share: signing in, endpoints, firewall rules, prices, names.

Only this package and the providers above it know Google's libraries.
"""
