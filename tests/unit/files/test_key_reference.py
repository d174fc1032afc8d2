from __future__ import annotations

import re
import tomllib

from docs import generate_reference
from orchestrator.adapters.files.documents import FileDocuments


def test_the_generated_pages_are_up_to_date() -> None:
    for path, text in generate_reference.pages().items():
        assert path.read_text() == text, (
            f"{path.name} is out of date: run python -m docs.generate_reference"
        )


def test_the_examples_of_the_pages_are_read() -> None:
    documents = FileDocuments()
    matrix, payload = (
        (generate_reference.REFERENCE / name).read_text() for name in ("matrix.md", "payload.md")
    )
    (example,) = re.findall(r"```yaml\n(.*?)```", matrix, re.DOTALL)
    assert documents.read_matrix(example, "matrix.md").metadata.name == "release"
    (example,) = re.findall(r"```toml\n(.*?)```", payload, re.DOTALL)
    assert tomllib.loads(example)["job"]
    assert documents.read_manifest(example, "payload.md").name == "torchbridge"
