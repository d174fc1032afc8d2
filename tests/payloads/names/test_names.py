import pytest

STRANGE = [
    "a|b",
    "new\nline",
    "tab\there",
    "brackets[0][1]",
    "emoji 🚢",
    "umlaut ä ß",
    "quote \" and '",
    "back\\slash",
    "colons::inside",
    "slash/inside",
    "<script>alert(1)</script>",
    "",
    " ",
    "percent %s {}",
    "nul \x00 byte",
    "x" * 300,
]


@pytest.mark.parametrize("value", STRANGE)
def test_strange(value):
    pass


@pytest.mark.parametrize("value", STRANGE, ids=STRANGE)
def test_strange_ids(value):
    print(value)


@pytest.mark.parametrize("n", range(200))
def test_many(n):
    pass


class TestGrüße:
    def test_schön(self):
        pass
