"""The agent: the small program that runs on a machine and produces the evidence.

It ships as the package ``seatrial_agent``, so it imports only itself (relatively) and the standard
library, and it runs on Python 3.9 or newer.
"""
