"""A folder that is chosen in a browser arrives as a payload, without what is not packed."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import Watch
from tests.integration.api_context import MANIFEST, MATRIX


def test_a_chosen_folder_is_planned(watch: Watch, tmp_path: Path) -> None:
    project = tmp_path / "proj"
    for name, text in {
        "payload.toml": MANIFEST.replace('name = "proof"', 'name = "mine"'),
        "tests/test_a.py": "def test_a(): pass\n",
        "demo.py": "print(1)\n",
        ".git/config": "[core]\n",
        "venv/pyvenv.cfg": "home = /usr\n",
        "venv/lib/large.py": "x = 1\n",
    }.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    with watch() as eyes:
        page = eyes.open("/launch") or eyes.page
        page.get_by_label("local.yaml").fill(MATRIX)
        page.locator("#folder").set_input_files(project)
        chosen = page.locator("#folder").evaluate(
            "(field) => [...field.files].map((file) => file.webkitRelativePath).sort()"
        )
        assert chosen == ["proj/demo.py", "proj/payload.toml", "proj/tests/test_a.py"]
        page.get_by_role("button", name="Plan").click()
        expect(page.locator("#payload-about")).to_have_text("mine 1.10, 2 jobs: unit, demo")
        expect(page.get_by_role("button", name="Start")).to_be_visible()
