"""torchbridge: the library that this payload proves."""

__version__ = "0.4.40"
