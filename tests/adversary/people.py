"""Somebody says yes to what he did himself, or for ever."""

from __future__ import annotations

from tests.adversary.lie import Lie

LIES: tuple[Lie, ...] = ()
