import pytest


@pytest.fixture
def broken_setup():
    raise RuntimeError("set-up is broken")


@pytest.fixture
def broken_teardown():
    yield
    raise RuntimeError("tear-down is broken")


def test_setup_error(broken_setup):
    pass


def test_teardown_error(broken_teardown):
    pass


def test_fails_and_teardown_error(broken_teardown):
    assert 1 == 2


def test_good():
    pass
