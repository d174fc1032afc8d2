"""Listens on a port, lets everybody in and never says a word."""

import signal
import socket
import sys

listener = socket.create_server(("", int(sys.argv[1])), backlog=128)
print("lab: the machine listens", flush=True)
signal.pause()
