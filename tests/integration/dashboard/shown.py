"""A page as a test reads it: elements with their attributes and their words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_LOOSE = re.compile(r" ([,.;:)])")
_VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
_UNSEEN = {"script", "style", "template"}


@dataclass
class Element:
    """One element."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    def __getitem__(self, name: str) -> str:
        return self.attributes[name]

    def get(self, name: str, otherwise: str = "") -> str:
        """An attribute; one without a value is empty text."""
        return self.attributes.get(name, otherwise)

    def has(self, name: str) -> bool:
        """Whether it has the attribute."""
        return name in self.attributes

    @property
    def classes(self) -> set[str]:
        """Its classes."""
        return set(self.get("class").split())

    @property
    def text(self) -> str:
        """Its words, with single spaces between them, and none before a comma."""
        return _LOOSE.sub(r"\1", " ".join("".join(self._words()).split()))

    def all(self, tag: str = "", class_: str = "", **attributes: str) -> list[Element]:
        """Everything below it of the tag, with the class and these attributes.

        An attribute's name is written with `_` for `-`; a value of `*` takes any.
        """
        asked = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [one for one in self.walk() if _is(one, tag, class_, asked)]

    def one(self, tag: str = "", class_: str = "", **attributes: str) -> Element:
        """The only one."""
        found = self.all(tag, class_, **attributes)
        assert len(found) == 1, f"{len(found)} of {tag}.{class_} {attributes}"
        return found[0]

    def walk(self) -> Iterator[Element]:
        """Everything below it, in the order of the page."""
        for child in self.children:
            if isinstance(child, Element):
                yield child
                yield from child.walk()

    def rows(self, table: str = "") -> list[dict[str, str]]:
        """The rows of a table, by the titles of its columns: of the one in the box of this id."""
        inside = self.one(id=table) if table else self
        found = inside.all("table")[0]
        titles = [head.text for head in found.one("thead").all("th")]
        return [
            dict(zip(titles, [one.text for one in _cells(row)], strict=True))
            for row in found.one("tbody").all("tr")
        ]

    def _words(self) -> Iterator[str]:
        if self.tag in _UNSEEN:
            return
        for child in self.children:
            if isinstance(child, str):
                yield child
            else:
                yield from child._words()
                yield " "


def _cells(row: Element) -> list[Element]:
    return [one for one in row.children if isinstance(one, Element)]


def _is(element: Element, tag: str, class_: str, asked: dict[str, str]) -> bool:
    if tag and element.tag != tag:
        return False
    if class_ and class_ not in element.classes:
        return False
    return all(
        element.has(name) if value == "*" else element.attributes.get(name) == value
        for name, value in asked.items()
    )


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("")
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(found)
        if tag not in _VOID:
            self._open.append(found)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(found)

    def handle_endtag(self, tag: str) -> None:
        for depth in range(len(self._open) - 1, 0, -1):
            if self._open[depth].tag == tag:
                del self._open[depth:]
                return

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def read_page(html: str) -> Element:
    """Read HTML."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.root
