"""What a process leaves behind once it has started."""

import gc

_YOUNG = 20_000
"""Objects that are made before the young are searched: a page makes more than the usual 700."""


def freeze_start_up_objects() -> None:
    """Take what was loaded for good out of the search for garbage, and search less often.

    It is some hundred thousand objects: to look through them stops every answer for a quarter of a
    second, again and again, and finds nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)
