"""What clouds say, made fit to be read."""

from __future__ import annotations

import pytest

from orchestrator.domain.machine import (
    ConfigError,
    CredentialsError,
    Extent,
    ProviderError,
    ProviderUnavailableError,
)
from runners.provider_context import LIMIT, after_checks, plain_words

PAGE = """<!DOCTYPE html>
<html lang=en>
  <title>Error 404 (Not Found)!!1</title>
  <style>*{margin:0;padding:0}html,code{font:15px/22px arial,sans-serif}</style>
  <p><b>404.</b> <ins>That's an error.</ins>
</html>"""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Rate  Limit\nExceeded", "Rate Limit Exceeded"),
        (PAGE, "a web page titled 'Error 404 (Not Found)!!1' instead of an answer"),
        ("<html><body>no</body></html>", "a web page instead of an answer"),
        (
            f"Unable to parse response (line 1), invalid JSON received. Retry:\nb'{PAGE}'",
            (
                "Unable to parse response (line 1), invalid JSON received. Retry: a web page "
                "titled 'Error 404 (Not Found)!!1' instead of an answer"
            ),
        ),
        ("", ""),
    ],
)
def test_pages_are_named_and_not_printed(said: str, words: str) -> None:
    assert plain_words(said) == words


def test_long_words_are_cut() -> None:
    assert len(plain_words("x" * 5000)) == LIMIT + len("...")


@pytest.mark.parametrize(
    ("first", "other", "kind", "code"),
    [
        (CredentialsError("a", code="denied"), ConfigError("b"), CredentialsError, "denied"),
        (ProviderUnavailableError("a", code="503"), ConfigError("b"), ConfigError, ""),
        (
            ProviderUnavailableError("a", code="503"),
            ProviderUnavailableError("b", code="429"),
            ProviderUnavailableError,
            "503",
        ),
    ],
)
def test_several_refusals_are_of_the_first_that_does_not_pass_by_itself(
    first: ProviderError, other: ProviderError, kind: type[ProviderError], code: str
) -> None:
    def refuse(error: ProviderError) -> None:
        raise error

    with pytest.raises(ProviderError, match=r"^a; b$") as caught:
        after_checks(lambda: refuse(first), lambda: refuse(other))
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.extent) == (code, Extent.PROJECT)
