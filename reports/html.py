"""A page from a report's Markdown: self-contained, without scripts, images or raw HTML."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt

PAGE = "page.html.j2"


def render_html(markdown: str, *, title: str, templates: Path) -> str:
    """Render Markdown as a page that needs nothing beside it."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    environment = Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        autoescape=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(PAGE).render(title=title, body=parser.render(markdown))
