"""Python client of a controller's REST interface; its public class is in `seatrial.py`."""
