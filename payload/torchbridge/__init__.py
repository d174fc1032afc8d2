"""torchbridge: the PyTorch library that this payload tests, demonstrates and benchmarks."""

__version__ = "0.4.40"
