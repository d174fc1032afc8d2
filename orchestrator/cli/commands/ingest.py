"""ingest: uploads of other programs' results, as a finished run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, cast

import typer

from orchestrator.cli.commands.options import JsonOption
from orchestrator.cli.errors import CliError, RefusedError
from orchestrator.cli.safe_text import one_line
from orchestrator.cli.session import Session, session_of
from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import Json
from orchestrator.domain.units import plural, size

BODY_LIMIT_BYTES = 2 * 1024**3
"""The controller's limit of an upload."""
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
        session.print_json(answers if len(answers) > 1 else answers[0])
    else:
        session.print(str(answers[-1]["run"]))


def _check_sources(sources: list[Path], platform: str) -> None:
    absent = [source for source in sources if not source.exists()]
    if absent:
        raise CliError(f"{absent[0]}: there is no such file or folder")
    if platform and len(sources) > 1:
        raise CliError(f"--platform {platform} cannot be of {len(sources)} cells: leave it out")


def _handed_in(
    session: Session, client: Seatrial, sources: list[Path], filters: Mapping[str, str | None]
) -> Iterator[Json]:
    """Upload each source as a cell; a new run of the first gets the others."""
    run = filters["run"]
    for source in sources:
        said = {name: value or None for name, value in filters.items()} | {"run": run}
        answer = _hand_in(session, client, source, said)
        run = str(answer["run"])
        _tell(session, answer)
        yield answer


def _hand_in(
    session: Session, client: Seatrial, source: Path, filters: Mapping[str, str | None]
) -> Json:
    with tempfile.TemporaryDirectory(prefix="seatrial-") as scratch:
        try:
            packed = session.wiring.pack_artifacts(source, Path(scratch))
        except RefusedError as error:
            raise CliError(str(error)) from None
        weight = packed.stat().st_size
        if weight > BODY_LIMIT_BYTES:
            most = size(BODY_LIMIT_BYTES)
            raise CliError(f"{source} comes to {size(weight)}; at most {most} are taken: pack it")
        name = source.name if packed == source else None
        session.say(f"handing in {source} ({size(weight)})")
        return client.post_file(
            "/ingest", packed, key=session.wiring.new_id(), name=name, **filters
        )


def _tell(session: Session, answer: Json) -> None:
    """Print the result of each file."""
    ingested = cast("Json", answer["ingested"])
    sources = cast("list[Json]", ingested["sources"])
    kept = [source for source in sources if source["state"] == "kept"]
    unsaid = [id(source) for source in kept[_SHOWN_KEPT:]]
    for source in sources:
        if id(source) in unsaid:
            continue
        session.say(_line(source))
        remarks = cast("list[str]", source.get("remarks") or [])
        for remark in remarks[:_SHOWN_REMARKS]:
            session.say(f"    {one_line(remark)}")
        if len(remarks) > _SHOWN_REMARKS:
            session.say(f"    and {plural(len(remarks) - _SHOWN_REMARKS, 'more remark')}")
    if unsaid:
        session.say(f"and {plural(len(unsaid), 'more file')}: kept, and not read")
    differing = cast("list[Json]", ingested["disagreements"])
    if ingested.get("repeated"):
        told = f", {len(differing)} of them differently" if differing else ""
        session.say(f"{ingested['repeated']} tests occur in more than one file{told}")
    for one in differing[:_SHOWN_REMARKS]:
        session.say(f"    {one_line(_difference(one))}")
    again = "was handed in before: " if answer.get("replayed") else ""
    session.say(f"{again}cell {answer['cell']} of run {answer['run']}: {answer['outcome']}")


def _line(source: Json) -> str:
    name = one_line(str(source["name"]))
    if source["state"] == "kept":
        return f"{name}: kept, and not read"
    jobs = cast("list[str]", source["jobs"])
    parts = [f"{source['dialect']} ({float(str(source['confidence'])):.0%} sure)"]
    parts += [f"{source['named']} tests"] if source["named"] is not None else []
    parts += [f"for {one_line(', '.join(jobs))}"] if jobs else []
    parts += ["INCONSISTENT"] if source["state"] == "inconsistent" else []
    return f"{name}: {', '.join(parts)}"


def _difference(one: Json) -> str:
    told = cast("list[Json]", one["sources"])
    words = ", ".join(f"{said['outcome']} in {said['source']}" for said in told)
    return f"{one['nodeid']}: {words}"
