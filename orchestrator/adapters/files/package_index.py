"""Lists the wheels of a distribution, with sizes and requirements, without downloading them.

Started as a program, the module fetches the pages that its input names and prints them as JSON. It
runs as a separate process, so that the guard of pip's addresses can set its proxy. `request_text`
returns the input. Credentials are passed in the input only: not in the arguments or the output.
"""

from __future__ import annotations

import base64
import json
import ssl
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from html.parser import HTMLParser
from http.client import HTTPException, HTTPMessage, InvalidURL, responses
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import SplitResult, unquote, urldefrag, urljoin, urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
    build_opener,
)

from orchestrator.application.ports.wheels import WheelsError

TIMEOUT_S = 20.0
_LIMIT_BYTES = 64 * 1024 * 1024
_AT_ONCE = 8
_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1, */*;q=0.01"
GET, HEAD = "GET", "HEAD"
_SERVERS = ("https://", "http://")
"""Schemes that are fetched: urllib would fetch others without the guard's proxy."""
_DEFAULT_PORTS = {"https": ":443", "http": ":80"}
_NOT_VALID = "the address is not valid"


@dataclass(frozen=True, slots=True)
class Question:
    """A request to a server."""

    method: str
    url: str
    """The URL without credentials."""
    authorization: str = ""
    """Value of the Authorization header; empty if the request has none."""


def origin(url: str) -> str:
    """Return scheme and host of an address, and its port if it is not the scheme's own.

    Raises WheelsError if the address is not valid.
    """
    parts = _split(url)
    host = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme}://{host.removesuffix(_DEFAULT_PORTS.get(parts.scheme, ''))}"


def split_credentials(url: str) -> tuple[str, str]:
    """Return an address without its credentials, and the Authorization header; empty if none.

    Raises WheelsError if the address is not valid.
    """
    parts = _split(url)
    told, is_told, host = parts.netloc.rpartition("@")
    if not is_told:
        return url, ""
    user, _, password = told.partition(":")
    basic = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    return parts._replace(netloc=host).geturl(), f"Basic {basic}"


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # its text may hold a password
        raise WheelsError(_NOT_VALID) from None


@dataclass(frozen=True, slots=True)
class Page:
    """The answer of a server."""

    url: str
    """The URL after redirects, without credentials."""
    kind: str = ""
    """Its content type."""
    size_bytes: int | None = None
    """Size that the server states; None if it states none."""
    text: str = ""
    failure: str = ""
    """Why there is no answer; empty if there is one."""
    status: int = 0
    """HTTP status; 0 without an answer."""


@dataclass(frozen=True, slots=True)
class OfferedWheel:
    """A wheel that an index or a page links."""

    filename: str
    url: str
    """URL of the wheel; ``file:`` for a local one."""
    size_bytes: int | None = None
    """Size that the index states; None if it states none."""
    has_metadata: bool = False
    """Whether the index serves the metadata separately from the wheel."""
    requires_python: str = ""
    is_yanked: bool = False


def offered(page: Page) -> Iterator[OfferedWheel]:
    """Yield the wheels of an index's page, in JSON or HTML. Raises ValueError if it is neither."""
    if page.kind.startswith(_JSON):
        for found in _files(page.text):
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


def _files(text: str) -> list[Mapping[str, Any]]:
    try:
        read = json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    files = read.get("files", []) if isinstance(read, dict) else None
    if not isinstance(files, list) or not all(isinstance(one, dict) for one in files):
        raise ValueError("it is JSON without a list of files")
    return files


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


def request_text(authorities: str, asked: Iterable[Question]) -> str:
    """Return the program's input. `authorities` is a file of certificate authorities, or empty."""
    return json.dumps([authorities, [asdict(one) for one in asked]])


def read_pages(text: str) -> list[Page]:
    """Parse the program's output: one page per question, in the order of the questions."""
    return [Page(**one) for one in json.loads(text)]


class _Redirects(HTTPRedirectHandler):
    """Follows redirects to servers that the guard covers.

    The credentials are sent only to the server that they are for.
    """

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if not newurl.startswith(_SERVERS):
            raise HTTPError(req.full_url, code, "it redirects to no server", headers, fp)
        bare, own = split_credentials(newurl)
        new = super().redirect_request(req, fp, code, msg, headers, bare)
        same = req.get_header("Authorization", "") if origin(bare) == origin(req.full_url) else ""
        if new is not None and (own or same):
            new.add_unredirected_header("Authorization", own or same)
        return new


def _fetch(opener: OpenerDirector, asked: Question) -> Page:
    url = asked.url
    if not url.startswith(_SERVERS):
        return Page(url, failure=f"{url} is no address of a server")
    try:
        request = Request(url, method=asked.method, headers={"Accept": _ACCEPT})  # noqa: S310
        if asked.authorization:
            request.add_unredirected_header("Authorization", asked.authorization)
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            told = answer.headers.get("Content-Length") or ""
            length = int(told) if told.isdecimal() else None
            body = answer.read(_LIMIT_BYTES + 1) if asked.method == GET else b""
            kind = answer.headers.get("Content-Type") or ""
            failure = _cut(len(body), length) if asked.method == GET else ""
            text = "" if failure else body.decode(errors="replace")
            return Page(answer.url, kind, length, text, failure, answer.status)
    except HTTPError as error:
        # The server's message may hold a password, as in the address of a redirect.
        failure = f"HTTP Error {error.code}: {responses.get(error.code, 'unknown')}"
        return Page(url, failure=failure, status=error.code)
    except InvalidURL:  # its text may hold a password
        return Page(url, failure=_NOT_VALID)
    except (OSError, HTTPException) as error:
        return Page(url, failure=str(error) or type(error).__name__)
    except (ValueError, WheelsError):  # as of an address that cannot be split or encoded
        return Page(url, failure=_NOT_VALID)


def _cut(got_bytes: int, length: int | None) -> str:
    """Return the reason why a page is incomplete; empty if it is complete."""
    if got_bytes > _LIMIT_BYTES:
        return f"the page exceeds {_LIMIT_BYTES:,} bytes"
    if length is not None and got_bytes < length:
        return f"the page ended after {got_bytes:,} of {length:,} bytes"
    return ""


def _main(text: str) -> None:
    authorities, asked = json.loads(text)
    certificates = ssl.create_default_context(cafile=authorities or None)
    opener = build_opener(HTTPSHandler(context=certificates), _Redirects)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        pages = threads.map(partial(_fetch, opener), [Question(**one) for one in asked])
        json.dump([asdict(page) for page in pages], sys.stdout)


if __name__ == "__main__":
    _main(sys.stdin.read())
