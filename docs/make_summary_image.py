"""Take a picture of a summary as a page: python docs/make_summary_image.py docs/images/summary.png

The page is the golden release's; Chromium draws it. Its top is what fits into the picture.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reports.registry import render  # noqa: E402 - found by the line above
from tests.unit.reports.stories import release  # noqa: E402

WIDTH, HEIGHT = 1100, 1276
"""Pixels, down to the end of the plots."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
    "--blink-settings=preferredColorScheme=1", "--force-device-scale-factor=1",
)  # fmt: skip


def main(target: Path) -> int:
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        print(f"no browser is installed: one of {', '.join(BROWSERS)}", file=sys.stderr)
        return 1
    page = render("summary", release(), format="html", templates=ROOT / "templates" / "reports")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "summary.html")
        source.write_text(page, encoding="utf-8")
        size = f"--window-size={WIDTH},{HEIGHT}"
        profile = f"--user-data-dir={folder}/profile"
        picture = f"--screenshot={target.resolve()}"
        command = [browser, *OPTIONS, size, profile, picture, source.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    print(f"{target}: {target.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
