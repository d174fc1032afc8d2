"""Pages for every test that wants some."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.api_context import Desk
from tests.integration.dashboard.desk import PageDesk, signed_in
from tests.integration.dashboard.issuer_door import Door, a_door
from tests.oidc_issuer import Issuer, issuing


@pytest.fixture
def pages(api: Desk) -> PageDesk:
    """The pages over an empty database, for an administrator."""
    return signed_in(api, "admin")


@pytest.fixture(scope="module")
def shared_pages(shared_api: Desk) -> PageDesk:
    """The same for a whole module, whose tests leave them as they found them."""
    return signed_in(shared_api, "admin")


@pytest.fixture(scope="module")
def running() -> Iterator[Issuer]:
    """An issuer for a whole module."""
    with issuing() as issuer:
        yield issuer


@pytest.fixture
def door(api: Desk, running: Issuer) -> Door:
    """A browser that is not signed in, where people sign in at an issuer."""
    return a_door(api, running)
