"""A page from a report's Markdown: one file that can be mailed, without scripts or raw HTML."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token

from reports.model.plot import Plot

PAGE = "page.html.j2"


def render_html(markdown: str, *, title: str, templates: Path, plots: Sequence[Plot] = ()) -> str:
    """Render Markdown as a page that needs nothing beside it: it carries its plots."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("image", _image)
    body = parser.render(markdown, {"plots": {plot.path: plot for plot in plots}})
    environment = Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        autoescape=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(PAGE).render(title=title, body=body)


def _image(
    _renderer: object,
    tokens: Sequence[Token],
    index: int,
    _options: object,
    env: Mapping[str, Mapping[str, Plot]],
) -> str:
    """One of our plots, as an image that can do nothing; of any other image only its text."""
    token = tokens[index]
    plot = env["plots"].get(str(token.attrs.get("src")))
    if plot is None:
        return html.escape(token.content)
    data = base64.b64encode(plot.svg.encode()).decode("ascii")
    told = html.escape(f"{plot.title}. {plot.told}", quote=True)
    return f'<img alt="{told}" src="data:image/svg+xml;base64,{data}">'
