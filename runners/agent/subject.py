"""Proof that what the jobs will import is what was to be validated, byte for byte."""

from __future__ import annotations

from typing import Optional

from . import interpreters
from .facts import Asker
from .failures import WrongSubject
from .plan import Subject

_TIMEOUT_S = 300.0

# Runs like a job: the current folder and PYTHONPATH come first on sys.path, so that a source tree
# which would shadow the installed files is found out.
_PROOF = """
import base64, hashlib, importlib.util, os, sys
from importlib import metadata

MODULES = (".py", ".so", ".pyd")

def proof(name, version):
    try:
        dist = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return f"{name} is not installed"
    if version and dist.version != version:
        return f"{name} is installed as {dist.version}, not {version}"
    files = [f for f in dist.files or () if f.suffix in MODULES and ".." not in f.parts]
    files = [f for f in files if not f.parts[0].endswith((".dist-info", ".data"))]
    tops = sorted({f.parts[0].split(".")[0] for f in files} - {""})
    tops = [top for top in tops if top.isidentifier() and not top.startswith("__editable__")]
    if not tops:
        return f"{name} installed no importable files of its own (an editable install?)"
    return shadowed(dist, tops) or changed(dist, files)

def shadowed(dist, tops):
    home = os.path.realpath(str(dist.locate_file("")))
    for top in tops:
        spec = importlib.util.find_spec(top)
        places = list(spec.submodule_search_locations or [spec.origin]) if spec else []
        if not places:
            return f"{top} does not import"
        for place in map(os.path.realpath, map(str, places)):
            if os.path.dirname(place) != home:
                return f"{top} is imported from {place}, not from {home}"
    return None

def changed(dist, files):
    checked = 0
    for each in files:
        if each.hash is None:
            continue
        with open(dist.locate_file(each), "rb") as stream:
            digest = hashlib.new(each.hash.mode, stream.read()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != each.hash.value:
            return f"{each} differs from what {dist.metadata['Name']} {dist.version} installed"
        checked += 1
    return None if checked else "its RECORD holds no digests"

try:
    problem = proof(sys.argv[1], sys.argv[2])
except Exception as error:
    problem = f"{type(error).__name__}: {error}"
"""


def prove(subject: Subject, asker: Asker) -> None:
    """Check that the subject's import resolves to its installed, unchanged files.

    Raises:
        WrongSubject: it does not; the text says what would have been imported.
    """
    problem = _ask(subject, asker)
    if problem is not None:
        raise WrongSubject(f"{subject.requirement} is not what jobs would import: {problem}")


def _ask(subject: Subject, asker: Asker) -> Optional[str]:
    script = interpreters.answering(_PROOF, '{"problem": problem}')
    answer = asker.ask(script, subject.distribution, subject.version, timeout_s=_TIMEOUT_S)
    found = interpreters.extract(answer.text) if answer.ok else None
    if found is None:
        return f"the check itself failed: {answer.text.strip()[-1_000:]}"
    problem = found["problem"]
    return None if problem is None else str(problem)
