"""Holds what an unattended upgrade holds."""

import fcntl
import signal

names = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock")
held = [open(name, "w") for name in names]  # noqa: SIM115 - until this is killed
for file in held:
    fcntl.lockf(file, fcntl.LOCK_EX)
signal.pause()
