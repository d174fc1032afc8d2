"""What indexes and pages offer of a distribution: its wheels, their sizes and needs, unfetched.

Started as a program, it fetches what its arguments name and prints that as JSON: in a process of
its own, for which the guard of pip's addresses sets its proxy. The first argument is a file of
certificate authorities, or empty; the others are requests such as ``GET https://pypi.org/simple``.
"""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import Request, urlopen

TIMEOUT_S = 20.0
_LIMIT_BYTES = 64 * 1024 * 1024
_AT_ONCE = 8
_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1, */*;q=0.01"
GET, HEAD = "GET", "HEAD"


@dataclass(frozen=True, slots=True)
class Page:
    """The answer of a server."""

    url: str
    """After redirects."""
    kind: str = ""
    """Its content type."""
    size_bytes: int | None = None
    """As the server states it; None if it does not."""
    text: str = ""
    failure: str = ""
    """Why there is no answer; empty if there is one."""
    status: int = 0
    """Of an answer; 0 without one."""


@dataclass(frozen=True, slots=True)
class OfferedWheel:
    """A wheel that an index or a page links."""

    filename: str
    url: str
    """A local one is a ``file:`` URL."""
    size_bytes: int | None = None
    """As the index states it; None if it does not."""
    has_metadata: bool = False
    """Whether its metadata can be had without the wheel."""
    requires_python: str = ""
    is_yanked: bool = False


def offered(page: Page) -> Iterator[OfferedWheel]:
    """Yield the wheels of an index's page, in JSON or HTML."""
    if page.kind.startswith(_JSON):
        for found in json.loads(page.text).get("files", ()):
            name = str(found.get("filename", ""))
            if name.endswith(".whl"):
                yield OfferedWheel(
                    name,
                    urljoin(page.url, str(found.get("url", ""))),
                    found["size"] if isinstance(found.get("size"), int) else None,
                    bool(found.get("core-metadata") or found.get("dist-info-metadata")),
                    str(found.get("requires-python") or ""),
                    bool(found.get("yanked")),
                )
        return
    links = _Links()
    links.feed(page.text)
    for link in links.found:
        url = urldefrag(urljoin(page.url, link.get("href") or "")).url
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        if name.endswith(".whl"):
            told = link.keys() & {"data-core-metadata", "data-dist-info-metadata"}
            yield OfferedWheel(
                name,
                url,
                has_metadata=bool(told),
                requires_python=link.get("data-requires-python") or "",
                is_yanked="data-yanked" in link,
            )


def in_folder(folder: Path) -> Iterator[OfferedWheel]:
    """Yield the wheels of a local folder, and those that its own page links."""
    page = folder / "index.html"
    if page.is_file():
        yield from offered(Page(page.resolve().as_uri(), text=page.read_text(encoding="utf-8")))
    for path in sorted(folder.glob("*.whl")):
        yield OfferedWheel(path.name, path.resolve().as_uri(), path.stat().st_size)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Mapping[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.append(dict(attrs))


def read_pages(text: str) -> list[Page]:
    """Read what the program printed."""
    return [Page(**one) for one in json.loads(text)]


def _fetch(certificates: ssl.SSLContext, asked: str) -> dict[str, object]:
    method, _, url = asked.partition(" ")
    if not url.startswith(("https://", "http://")):
        return {"url": url, "failure": f"{url} is no address of a server"}
    request = Request(url, method=method, headers={"Accept": _ACCEPT})  # noqa: S310
    try:
        with urlopen(request, timeout=TIMEOUT_S, context=certificates) as answer:  # noqa: S310
            length = answer.headers.get("Content-Length") or ""
            body = answer.read(_LIMIT_BYTES) if method == GET else b""
            return {
                "url": answer.url,
                "kind": answer.headers.get("Content-Type") or "",
                "size_bytes": int(length) if length.isdecimal() else None,
                "text": body.decode(errors="replace"),
                "status": answer.status,
            }
    except HTTPError as error:
        return {"url": url, "failure": str(error), "status": error.code}
    except (OSError, ValueError) as error:
        return {"url": url, "failure": str(error)}


def _main(authorities: str, asked: Iterable[str]) -> None:
    certificates = ssl.create_default_context(cafile=authorities or None)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        json.dump(list(threads.map(partial(_fetch, certificates), asked)), sys.stdout)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
