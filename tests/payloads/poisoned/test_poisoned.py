"""Stands for a device that stays unusable in a process after one bad kernel."""

poisoned = False


def touch_device():
    if poisoned:
        raise RuntimeError("CUDA error: device-side assert triggered\nCompile with DSA")


def test_before():
    touch_device()


def test_bad_kernel():
    global poisoned
    poisoned = True
    print("launching the bad kernel")
    touch_device()


def test_after():
    touch_device()


def test_only_talks_about_it():
    assert "CUDA error: device-side assert triggered" == ""
