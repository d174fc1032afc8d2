"""Draw the progress view of a real run: python docs/make_screenshot.py docs/images/progress.svg

Start it while a run is going on (in the home, or at the address, that the environment names). It
waits until the last running suite has come far enough to be worth a picture, and stops there.
"""

from __future__ import annotations

import io
import re
import sys
import time
from pathlib import Path

from rich.console import Console

from orchestrator.bootstrap.cli_wiring import CommandWiring
from orchestrator.cli.session import Session
from orchestrator.cli.view.live_run import LogTail, picture
from orchestrator.cli.view.rows import reported
from orchestrator.cli.watching.poll_threads import Tails
from orchestrator.domain.run_record import RunResponse

WIDTH, HEIGHT = 100, 24
FAR_ENOUGH = 0.6


def far_enough(run: RunResponse) -> bool:
    jobs = [job for cell in run.cells for job in cell.jobs if job.is_running and job.current]
    counts = [job.counts for job in jobs if job.counts and job.counts.collected]
    return any(reported(one) >= FAR_ENOUGH * one.collected for one in counts)


def svg(run: RunResponse, tail: LogTail, session: Session) -> str:
    console = Console(
        record=True, width=WIDTH, height=HEIGHT, file=io.StringIO(), force_terminal=True
    )
    note = f"Ctrl-C: leave it running · seatrial cancel {run.id}"
    now = session.wiring.clock.now()
    console.print(picture(run, tail, now=now, width=WIDTH, height=HEIGHT, note=note))
    drawing = console.export_svg(title="seatrial run")
    # The reader's own font: a picture must not fetch anything from elsewhere.
    drawing = re.sub(r"@font-face\s*\{.*?\}", "", drawing, flags=re.DOTALL)
    return drawing.replace("Fira Code", "Menlo, DejaVu Sans Mono")


def main(target: Path) -> int:
    session = Session(CommandWiring())
    client = session.client()
    run = client.run().record
    tails = Tails(client, run.id)
    while not run.is_finished:
        tail = tails.look(run)
        if far_enough(run):
            target.write_text(svg(run, tail, session), encoding="utf-8")
            return 0
        time.sleep(0.2)
        run = client.run(run.id).record
    print("the run is over: start another one, and this beside it", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
