import pytest


@pytest.mark.xfail(reason="known bug", strict=False)
def test_xfail():
    assert 1 == 2


@pytest.mark.xfail(reason="thought to be broken", strict=False)
def test_xpass():
    pass


@pytest.mark.xfail(reason="must be broken", strict=True)
def test_strict_xpass():
    pass


def test_plain():
    pass
