import os
import sys

MEGABYTES = int(os.environ.get("NOISY_MB", "200"))
LINE = b"x" * 1_023 + b"\n"


def shout(write):
    piece = LINE * 1_024
    for _ in range(MEGABYTES):
        write(piece)


def test_captured():
    shout(lambda piece: sys.stdout.write(piece.decode()))


def test_not_captured(capfd):
    with capfd.disabled():
        shout(sys.stdout.buffer.write)
        sys.stdout.flush()


def test_quiet():
    print("the very last words")
