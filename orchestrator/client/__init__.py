"""Python client of a controller, which the command line uses: `seatrial.py` has its methods."""
