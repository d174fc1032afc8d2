"""Pages for every test that wants some."""

from __future__ import annotations

import pytest

from tests.integration.api_context import Desk
from tests.integration.dashboard.desk import PageDesk, signed_in


@pytest.fixture
def pages(api: Desk) -> PageDesk:
    """The pages over an empty database, for an administrator."""
    return signed_in(api, "admin")


@pytest.fixture(scope="module")
def shared_pages(shared_api: Desk) -> PageDesk:
    """The same for a whole module, whose tests leave them as they found them."""
    return signed_in(shared_api, "admin")
