import pytest

pytest.skip("a whole module is skipped", allow_module_level=True)


def test_never():
    pass
