"""Holds what an unattended upgrade holds, for so many seconds."""

import fcntl
import sys
import time

names = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock")
held = [open(name, "w") for name in names]  # noqa: SIM115 - until this is killed
for file in held:
    fcntl.lockf(file, fcntl.LOCK_EX)
time.sleep(float(sys.argv[1]))
