"""Small wheels for tests."""

from __future__ import annotations

import io
import zipfile


def wheel_bytes(name: str, version: str, *requires: str, tag: str = "py3-none-any") -> bytes:
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    files = {
        f"{name}/__init__.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return out.getvalue()
