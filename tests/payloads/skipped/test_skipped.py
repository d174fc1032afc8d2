import pytest


@pytest.mark.skip(reason="no such device here")
def test_marked():
    pass


def test_inside():
    pytest.skip("found out inside")


@pytest.mark.skipif(True, reason="condition holds")
def test_condition():
    pass


def test_runs():
    pass
