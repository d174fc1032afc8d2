import threading


def test_before():
    pass


def test_hangs_for_ever():
    threading.Event().wait()


def test_after():
    pass
