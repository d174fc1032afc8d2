"""Reads matrices, manifests and policies from their files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from pydantic import TypeAdapter

from orchestrator.adapters.files.bind_dataclass import BAD, DataclassBinder
from orchestrator.adapters.files.document_nodes import (
    ConfigNode,
    DocumentSyntaxError,
    from_json,
    located,
    placed,
    read_toml,
    read_yaml,
    yaml_text,
)
from orchestrator.adapters.files.requirements import manifest_faults, matrix_faults
from orchestrator.application.ports.documents import Source
from orchestrator.domain.annotation import Annotation, AnnotationsFile, check_annotations
from orchestrator.domain.document_problems import InvalidDocumentError, Problem, nearest
from orchestrator.domain.gate.policy import GatePolicy
from orchestrator.domain.gate.policy_checks import check_policy
from orchestrator.domain.ingest_notes import IngestNotes, check_notes
from orchestrator.domain.machine import ProviderTraits
from orchestrator.domain.manifest import Manifest, check_manifest
from orchestrator.domain.matrix import Matrix
from orchestrator.domain.matrix_checks import check_matrix

API_VERSION = "seatrial/v1"
T = TypeVar("T")
_KINDS = {
    "Matrix": "a matrix (for `seatrial run`)",
    "ReleaseGate": "a policy (for `seatrial gate check`)",
    "Ingest": "a file of notes (for `seatrial ingest`)",
    "Annotations": "a file of annotations (for `seatrial annotate`)",
}
"""Kinds of documents, and the commands that read them."""


def _called(kind: str | None) -> str:
    return _KINDS.get(kind or "", "what is read here").partition(" (")[0]


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """A document with its name, value and nodes."""

    name: str
    value: T
    root: ConfigNode
    problems: tuple[Problem, ...] = ()
    """Errors of form; if there are any, `value` has only the usable parts of the document."""

    def refuse(self, problems: Iterable[Problem] = ()) -> None:
        """Raise InvalidDocumentError with lines and columns if there are problems.

        A problem of a part with an error of form is left out: the part may hold a replaced value.
        """
        found = [
            located(self.root, problem)
            for problem in problems
            if not any(_is_within(problem, other) for other in self.problems)
        ]
        if found or self.problems:
            raise InvalidDocumentError(self.name, sorted([*self.problems, *found], key=_place))


class DocumentForm(Generic[T]):
    """One kind of document: its dataclass, and its ``apiVersion`` and ``kind``."""

    def __init__(self, shape: type[T], kind: str | None = None) -> None:
        """`kind` is required beside ``apiVersion``; None for documents without both keys."""
        self._shape = shape
        self._kind = kind

    def read(
        self, source: Source, name: str, parse: Callable[[str], ConfigNode] = read_yaml
    ) -> Read[T]:
        """Parse the text, or bind nodes that were parsed before. Raises InvalidDocumentError."""
        read = self.sketch(source, name, parse)
        read.refuse()
        return read

    def sketch(
        self, source: Source, name: str, parse: Callable[[str], ConfigNode] = read_yaml
    ) -> Read[T]:
        """Return the document with its problems if its usable parts can be checked further.

        Raises InvalidDocumentError.
        """
        try:
            root = parse(source) if isinstance(source, str) else from_json(source)
        except DocumentSyntaxError as error:
            problem = self._is_payload(source, parse) or error.problem
            raise InvalidDocumentError(name, [problem]) from None
        other = self._is_other(root) or (root.entries is None and self._is_payload(source, parse))
        if other:
            raise InvalidDocumentError(name, [other])
        shaper = DataclassBinder()
        body = self._without_header(root, shaper)
        value = shaper.read(body, self._shape)
        if value is BAD:
            raise InvalidDocumentError(name, sorted(shaper.problems, key=_place))
        return Read(name, cast(T, value), root, tuple(shaper.problems))

    def schema(self) -> dict[str, object]:
        """Return the JSON Schema, draft 2020-12."""
        schema: dict[str, Any] = self._adapter.json_schema()
        if self._kind:
            header = {"apiVersion": {"const": API_VERSION}, "kind": {"const": self._kind}}
            schema["properties"] = {**header, **schema["properties"]}
            schema["required"] = [*header, *schema.get("required", ())]
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}

    def document(self, value: T) -> dict[str, object]:
        """Return a document that reads as this value."""
        header = {"apiVersion": API_VERSION, "kind": self._kind} if self._kind else {}
        body: dict[str, object] = self._adapter.dump_python(value, mode="json", exclude_none=True)
        return {**header, **body}

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        """The adapter of the dataclass; it is created at first use, because that is slow."""
        return TypeAdapter(self._shape)

    def _is_other(self, root: ConfigNode) -> Problem | None:
        """Return a problem if the document says that it is of another kind."""
        entry = (root.entries or {}).get("kind") if self._kind else None
        said = entry.item.value if entry is not None else None
        if entry is None or said == self._kind or said not in _KINDS:
            return None
        return placed(
            ("kind",), f"is {_KINDS[str(said)]}, not {_called(self._kind)}", entry.item.at
        )

    def _is_payload(self, source: Source, parse: Callable[[str], ConfigNode]) -> Problem | None:
        """Return a problem if the text is TOML where YAML is expected."""
        if not isinstance(source, str) or parse is read_toml:
            return None
        try:
            found = read_toml(source)
        except DocumentSyntaxError:
            return None
        if not found.entries:
            return None
        wanted = _called(self._kind)
        return Problem((), f"is TOML, as a payload.toml, not {wanted}; a matrix names its payload")

    def _without_header(self, root: ConfigNode, shaper: DataclassBinder) -> ConfigNode:
        if self._kind is None or root.entries is None:
            return root
        rest = dict(root.entries)
        for key, wanted in (("apiVersion", API_VERSION), ("kind", self._kind)):
            entry = rest.pop(key, None)
            if entry is None:
                shaper.say((key,), f"is missing: write `{key}: {wanted}`", root.at)
            elif entry.item.value != wanted:
                hint = nearest(str(entry.item.value), [wanted])
                shaper.say((key,), f"{entry.item.value!r} is unknown{hint}", entry.item.at)
        return ConfigNode(rest, root.at)


def _place(problem: Problem) -> tuple[int, int]:
    return (problem.line or 0, problem.column or 0)


def _is_within(problem: Problem, other: Problem) -> bool:
    """Return whether the path of one of the problems begins with the path of the other."""
    depth = min(len(problem.path), len(other.path))
    return problem.path[:depth] == other.path[:depth]


class FileDocuments:
    """Implements `orchestrator.application.ports.documents.Documents`."""

    def __init__(self) -> None:
        self._matrix = DocumentForm(Matrix, "Matrix")
        self._manifest = DocumentForm(Manifest)
        self._notes = DocumentForm(IngestNotes, "Ingest")
        self._annotations = DocumentForm(AnnotationsFile, "Annotations")
        self._policy = DocumentForm(GatePolicy, "ReleaseGate")

    def read_matrix(self, source: Source, name: str) -> Matrix:
        """Return a well-formed matrix, not checked for feasibility."""
        return self._matrix.read(source, name).value

    def sketch_matrix(self, source: Source, name: str) -> Matrix:
        """Return the usable parts of a matrix that `check_matrix` may refuse."""
        return self._sketch_matrix(source, name).value

    def check_matrix(
        self,
        source: Source,
        name: str,
        *,
        manifest: Manifest,
        providers: Mapping[str, ProviderTraits],
        refused: Mapping[str, str] = MappingProxyType({}),
    ) -> Matrix:
        """Return a matrix that can be launched with this payload and these providers.

        Raises InvalidDocumentError.
        """
        read = self._sketch_matrix(source, name)
        unusable = [
            Problem(("platforms", index, "provider"), refused[platform.provider])
            for index, platform in enumerate(read.value.platforms)
            if platform.provider in refused
        ]
        found = (*check_matrix(read.value, manifest, providers), *matrix_faults(read.value))
        read.refuse([*found, *unusable])
        return read.value

    def _sketch_matrix(self, source: Source, name: str) -> Read[Matrix]:
        read = self._matrix.sketch(source, name)
        if any(problem.path[:1] == ("payload",) for problem in read.problems):
            read.refuse()  # the payload whose jobs it names is unknown
        return read

    def refuse_matrix(self, source: Source, name: str, problems: Iterable[Problem]) -> None:
        """Raise InvalidDocumentError with lines and columns, if there are problems."""
        self._matrix.read(source, name).refuse(problems)

    def read_manifest(self, text: str, name: str) -> Manifest:
        """Return a valid ``payload.toml``."""
        read = self._manifest.read(text, name, read_toml)
        read.refuse([*check_manifest(read.value), *manifest_faults(read.value)])
        return read.value

    def refuse_manifest(self, text: str, name: str, problems: Iterable[Problem]) -> None:
        """Raise InvalidDocumentError with lines and columns, if there are problems."""
        self._manifest.read(text, name, read_toml).refuse(problems)

    def read_ingest_notes(self, text: str, name: str) -> IngestNotes:
        """Return a valid ``ingest.yaml``."""
        read = self._notes.read(text, name)
        read.refuse(check_notes(read.value))
        return read.value

    def refuse_ingest_notes(self, text: str, name: str, problems: Iterable[Problem]) -> None:
        """Raise InvalidDocumentError with lines and columns, if there are problems."""
        self._notes.read(text, name).refuse(problems)

    def read_annotations(
        self, text: str, name: str, *, cells: Sequence[str]
    ) -> tuple[Annotation, ...]:
        """Return valid signed annotations of a run with these cells."""
        read = self._annotations.read(text, name)
        written = read.value.signed()
        read.refuse(check_annotations(written, cells))
        return written

    def read_policy(self, source: Source, name: str) -> GatePolicy:
        """Return a valid policy of a gate."""
        read = self._policy.read(source, name)
        read.refuse(check_policy(read.value))
        return read.value

    def matrix_document(self, matrix: Matrix) -> dict[str, object]:
        """Return the document that parses as this matrix."""
        return self._matrix.document(matrix)

    def matrix_text(self, matrix: Matrix) -> str:
        """Return the YAML text that parses as this matrix."""
        return yaml_text(self._matrix.document(matrix))

    def matrix_schema(self) -> dict[str, object]:
        """JSON Schema of a matrix file."""
        return self._matrix.schema()

    def manifest_schema(self) -> dict[str, object]:
        """JSON Schema of ``payload.toml``."""
        return self._manifest.schema()

    def policy_schema(self) -> dict[str, object]:
        """JSON Schema of a policy file."""
        return self._policy.schema()
