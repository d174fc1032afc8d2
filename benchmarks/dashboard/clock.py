"""Times and the ids that sort by them, the same for the same seed."""

from __future__ import annotations

import random
from datetime import datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_RANDOM_BITS = 80


def id_at(at: datetime, chance: random.Random) -> str:
    """Return an id for that time, as the product makes ids."""
    number = (int(at.timestamp() * 1000) << _RANDOM_BITS) | chance.getrandbits(_RANDOM_BITS)
    return "".join(_ALPHABET[number >> 5 * place & 31] for place in reversed(range(26)))
