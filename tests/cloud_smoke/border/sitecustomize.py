"""Read by every Python that the smoke starts: its controllers record what they ask of clouds."""

import os
import sys

if os.environ.get("SMOKE_TRANSCRIPT") and "controller" in sys.orig_argv:
    from tests.cloud_smoke.recording import install

    install()
