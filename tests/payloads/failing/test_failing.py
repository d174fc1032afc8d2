def test_before():
    print("seen before")


def test_wrong():
    print("seen in the failing one")
    assert 1 + 1 == 3, "arithmetic is wrong"


def test_after():
    pass
