"""Names, logs, reasons and words that mean harm, on every page: text, and nothing but text."""

from __future__ import annotations

import pytest

from tests.browser.addresses import PAGES, Address
from tests.browser.conftest import Trial, Watch

EVERY = pytest.mark.parametrize("address", PAGES, ids=lambda one: one.name)
_HIDDEN = (
    "[\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u00ad\\u061c"
    "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff]"
)
_SEEN = f"""() => {{
    const hidden = /{_HIDDEN}/u;
    const wrong = [];
    const walker = document.createTreeWalker(document, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {{
        if (hidden.test(walker.currentNode.data)) wrong.push(walker.currentNode.data);
    }}
    for (const element of document.querySelectorAll('*')) {{
        for (const {{name, value}} of element.attributes) {{
            // uPlot lays out its boxes by the DOM's own style objects.
            const laidOut = name === 'style' && element.closest('.uplot');
            if (name.startsWith('on') || (name === 'style' && !laidOut)) {{
                wrong.push(`${{name}}=${{value}}`);
            }}
            if (hidden.test(value)) wrong.push(`${{name}}: ${{value}}`);
            if (/^\\s*(javascript|data):/i.test(value) && /^(href|src|action)$/.test(name)) {{
                wrong.push(`${{name}}=${{value}}`);
            }}
        }}
    }}
    return wrong.map((it) => JSON.stringify(it.slice(0, 120)));
}}"""
_STRANGERS = "document.querySelectorAll('script:not([nonce]), img, iframe, object, embed').length"


@EVERY
def test_texts_stay_texts(hostile_trial: Trial, watch_hostile: Watch, address: Address) -> None:
    with watch_hostile(width=1400) as eyes:
        eyes.open(address.path(hostile_trial.world))
        assert eyes.page.title() != "owned"
        assert eyes.page.evaluate(_SEEN) == []
        assert eyes.page.evaluate(_STRANGERS) == 0
        eyes.narrow(400)
        eyes.ask_axe()
