"""ingest: uploads of other programs' results, as a finished run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.commands.options import JsonOption
from orchestrator.cli.errors import CliError, RefusedError
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, session_of
from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import Answer
from orchestrator.domain.ingested import UPLOAD_LIMIT_BYTES, Source, SourceState
from orchestrator.domain.run_record import IngestResponse
from orchestrator.domain.units import plural, size

_SHOWN_REMARKS = 5
_SHOWN_KEPT = 20


def ingest_command(
    context: typer.Context,
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="A folder of results, one file, or a .zip, .tar or .tar.gz; several are a cell"
            " each, in this order, and each says its platform in its ingest.yaml.",
        ),
    ],
    platform: Annotated[
        str, typer.Option("--platform", metavar="P", help="Where it ran: gcp-l4, aws-a10g ...")
    ] = "",
    subject: Annotated[
        str, typer.Option("--subject", metavar="NAME@VERSION", help="What was validated.")
    ] = "",
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Add a cell to this finished run."),
    ] = None,
    environment: Annotated[
        str, typer.Option("--environment", metavar="E", help="Its name; `image` by default.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Create a finished run of one cell from files of other programs, and print its id.

    Values of ingest.yaml in the folder need no option.
    """
    session = session_of(context)
    _check_sources(sources, platform)
    client = session.client()
    target = client.run(run).record.id if run is not None else None
    asked = {"platform": platform, "subject": subject, "environment": environment, "run": target}
    answers = list(_handed_in(session, client, sources, asked))
    if as_json:
        told = [answer.json for answer in answers]
        session.print_json(told if len(told) > 1 else told[0])
    else:
        session.print(answers[-1].record.run)


def _check_sources(sources: list[Path], platform: str) -> None:
    absent = [source for source in sources if not source.exists()]
    if absent:
        raise CliError(f"{absent[0]}: there is no such file or folder")
    if platform and len(sources) > 1:
        raise CliError(f"--platform {platform} cannot be of {len(sources)} cells: leave it out")


def _handed_in(
    session: Session, client: Seatrial, sources: list[Path], filters: Mapping[str, str | None]
) -> Iterator[Answer[IngestResponse]]:
    """Upload each source as a cell; a new run of the first gets the others."""
    run = filters["run"]
    for source in sources:
        said = {name: value or None for name, value in filters.items()} | {"run": run}
        answer = _hand_in(session, client, source, said)
        run = answer.record.run
        _tell(session, answer.record)
        yield answer


def _hand_in(
    session: Session, client: Seatrial, source: Path, filters: Mapping[str, str | None]
) -> Answer[IngestResponse]:
    with tempfile.TemporaryDirectory(prefix="seatrial-") as scratch:
        try:
            packed = session.wiring.pack_artifacts(source, Path(scratch))
        except RefusedError as error:
            raise CliError(str(error)) from None
        weight = packed.stat().st_size
        if weight > UPLOAD_LIMIT_BYTES:
            most = size(UPLOAD_LIMIT_BYTES)
            raise CliError(f"{source} comes to {size(weight)}; at most {most} are taken: pack it")
        name = source.name if packed == source else None
        session.say(f"handing in {source} ({size(weight)})")
        return client.ingest(packed, name=name, **filters)


def _tell(session: Session, answer: IngestResponse) -> None:
    """Print the result of each file."""
    ingested = answer.ingested
    kept = [one.name for one in ingested.sources if one.state is SourceState.KEPT]
    unsaid = set(kept[_SHOWN_KEPT:])
    for source in ingested.sources:
        if source.name in unsaid:
            continue
        session.say(_line(source))
        for remark in source.remarks[:_SHOWN_REMARKS]:
            session.say(f"    {one_line(remark)}")
        if len(source.remarks) > _SHOWN_REMARKS:
            session.say(f"    and {plural(len(source.remarks) - _SHOWN_REMARKS, 'more remark')}")
    if unsaid:
        session.say(f"and {plural(len(unsaid), 'more file')}: kept, and not read")
    differing = ingested.disagreements
    if ingested.repeated:
        told = f", {len(differing)} of them differently: the worst counts" if differing else ""
        session.say(f"{plural(ingested.repeated, 'test')} in more than one file{told}")
    for one in differing[:_SHOWN_REMARKS]:
        words = ", ".join(f"{outcome} in {name}" for name, outcome in one.sources)
        session.say(f"    {one_line(f'{one.nodeid}: {words}')}")
    again = "was handed in before: " if answer.replayed else ""
    session.say(f"{again}cell {one_line(answer.cell)} of run {answer.run}: {answer.outcome}")


def _line(source: Source) -> str:
    name = one_line(source.name)
    if source.state is SourceState.KEPT:
        return f"{name}: kept, and not read"
    parts = [f"{source.dialect} ({source.confidence:.0%} sure)"]
    parts += [plural(source.named, "test")] if source.named is not None else []
    parts += [f"for {one_line(', '.join(source.jobs))}"] if source.jobs else []
    parts += ["INCONSISTENT"] if source.state is SourceState.INCONSISTENT else []
    return f"{name}: {', '.join(parts)}"
