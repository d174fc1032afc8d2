"""Records the operators that some work launches on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

VIEWS = {"t", "view", "_unsafe_view", "reshape", "transpose", "detach", "expand", "alias"}
READ = "_local_scalar_dense"  # copies a number to the host, which waits for the device


def name_of(function: Any, args: tuple, made: Any) -> str:
    """Return the operator's name without its overload."""
    return function.overloadpacket.__name__


class Operators(TorchDispatchMode):
    """Records operators in `seen`: their names, or the results of `note(function, args, made)`."""

    def __init__(self, note: Callable[[Any, tuple, Any], Any] = name_of) -> None:
        super().__init__()
        self.note = note
        self.seen: list[Any] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        self.seen.append(self.note(function, args, made))
        return made


def calls_of(work: Callable, *inputs: Any) -> list[str]:
    """Return the names of the operators that `work` launches for `inputs`, without views."""
    with Operators() as operators:
        work(*inputs)
    return [name for name in operators.seen if name not in VIEWS]
