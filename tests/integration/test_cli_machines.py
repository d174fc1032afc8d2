"""machines, cost and ssh: against a controller of the tests' own over a real socket."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import cli_answers
from tests.unit.cli import in_process, rented, runs
from tests.unit.cli.fake_controller import Answer, FakeController, plan
from tests.unit.cli.in_process import ID, SHOWN, Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures
MACHINES, COSTS = "/api/v1/machines", "/api/v1/costs"
EVIL = "i-0\x1b[2J\u202eabc"
ACCESS = {
    "address": "203.0.113.7",
    "port": 2222,
    "user": "ubuntu",
    "host_key": "ssh-ed25519 AAAAC3Nza",
    "private_key": "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n",
    "key_file": "",
}


def shows(controller: FakeController, *items: dict[str, Any], **unread: str) -> None:
    told = {"items": list(items), "unread": unread, "asked": ["aws"]}
    controller.answers["GET", MACHINES] = Answer.of(told)
    for one in items:
        path = f"{MACHINES}/{one['provider']}/{one['id']}/terminate"
        controller.answers["POST", path] = Answer.of(one, 202)


def ended(controller: FakeController) -> list[str]:
    return [r.path for r in controller.requests if r.path.endswith("/terminate")]


def test_machines_are_listed(cli: Cli, controller: FakeController) -> None:
    shows(controller, rented.sight("us-east-1/i-0abc"), rented.sight(EVIL, ownership="leased"))
    assert cli("machines") == 0
    assert "us-east-1/i-0abc" in cli.out
    assert "orphan" in cli.out
    assert "2026-03-01 13:00" in cli.out
    assert "\x1b" not in cli.out
    assert "\u202e" not in cli.out
    assert cli("machines", "--orphans", "--json") == 0
    cli_answers.check("seatrial machines", cli.out)
    assert [item["ownership"] for item in json.loads(cli.out)["items"]] == ["orphan", "leased"]
    assert controller.requests[-1].query == {"orphans": ["true"]}


def test_no_machine_is_said(cli: Cli, controller: FakeController) -> None:
    shows(controller)
    assert cli("machines", "--orphans") == 0
    assert cli.out == ""
    assert "Nothing without an owner is there, as far as aws answered." in cli.err
    controller.answers["GET", "/api/v1/machines"] = Answer.of({"items": [], "unread": {}})
    assert cli("machines") == 0
    assert "No cloud was asked" in cli.err


def test_nothing_to_end_is_no_claim_about_clouds_that_were_not_asked(
    cli: Cli, controller: FakeController
) -> None:
    shows(controller, aws="expired token")
    assert cli("machines", "--orphans", "--terminate", "-y") == 5
    assert "Nothing is known: no cloud answered." in cli.err
    assert "aws could not be asked: expired token" in cli.err


def test_a_cloud_that_was_not_asked_is_no_empty_cloud(cli: Cli, controller: FakeController) -> None:
    shows(controller, aws="expired \x1b[31mtoken")
    assert cli("machines", "--orphans") == 5
    assert "aws could not be asked: expired token" in cli.err


def test_nothing_is_ended_without_being_asked(cli: Cli, controller: FakeController) -> None:
    shows(controller, rented.sight("us-east-1/i-0abc"))
    assert cli("machines", "--terminate") == 2
    assert "say -y" in cli.err
    assert ended(controller) == []


def test_everything_that_nobody_owns_is_ended(cli: Cli, controller: FakeController) -> None:
    shows(controller, rented.sight("us-east-1/i-0abc"), rented.sight("us-east-1/sg-1"))
    gone = f"{MACHINES}/aws/us-east-1/sg-1/terminate"
    controller.answers["POST", gone] = Answer.problem(404, "it is gone already")
    assert cli("machines", "--terminate", "-y", "--json") == 0
    cli_answers.check("seatrial machines --terminate", cli.out)
    assert json.loads(cli.out)["ended"] == ["aws/us-east-1/i-0abc", "aws/us-east-1/sg-1"]
    assert ended(controller) == [f"{MACHINES}/aws/us-east-1/i-0abc/terminate", gone]
    assert controller.requests[0].query == {"orphans": ["true"]}


def test_what_could_not_be_ended_is_no_success(cli: Cli, controller: FakeController) -> None:
    shows(controller, rented.sight("a"), rented.sight("b"))
    path = f"{MACHINES}/aws/a/terminate"
    controller.answers["POST", path] = Answer.problem(502, "the provider failed")
    assert cli("machines", "--terminate", "-y") == 5
    assert "aws a: the controller failed (502): the provider failed" in cli.err
    assert len(ended(controller)) == 2


def test_the_bill_of_a_run(cli: Cli, controller: FakeController) -> None:
    controller.answers["GET", COSTS] = Answer.of(rented.costs())
    assert cli("cost", ID) == 0
    assert "$1.13 (limit $4.00)" in cli.out
    assert "SIMULATED" in cli.out
    assert controller.requests[-1].query == {"run": [ID]}
    assert cli("cost", "latest", "--json") == 0
    assert json.loads(cli.out)["bill"]["total_usd"] == "1.1305"


def test_a_free_test_costs_nothing_in_two_decimals(cli: Cli, controller: FakeController) -> None:
    free = {"bill": rented.bill("0"), "usd_per_validated_test": "0"}
    controller.answers["GET", COSTS] = Answer.of(rented.costs() | free)
    assert cli("cost", ID) == 0
    assert "; $0.00 a validated test" in cli.out


def test_a_run_without_a_price_has_dashes(cli: Cli, controller: FakeController) -> None:
    own = rented.lease(provider="static", price_usd_per_hour="0", cost_usd="0", market="")
    none = {"bill": None, "usd_per_validated_test": None, "jobs": {}, "phases": {}}
    row = rented.costs()["platforms"][0] | none | {"machines": [own], "simulated": False}
    said = "own machine: nothing is charged"
    answer = rented.costs() | none | {"platforms": [row], "simulated": False, "max_usd": None}
    answer |= {"no_cost": said}
    controller.answers["GET", COSTS] = Answer.of(answer)
    assert cli("cost", ID) == 0
    assert f"run {ID}: {said}" in cli.out
    assert "$" not in cli.out


def test_days_of_own_machines_have_dashes(cli: Cli, controller: FakeController) -> None:
    said = "own machine: nothing is charged"
    plain = rented.spent()
    own = plain["providers"][0] | {"provider": "local", "bill": None, "no_cost": said}
    run = plain["runs"][0] | {"total_usd": None, "no_cost": said}
    controller.answers["GET", COSTS] = Answer.of(
        plain
        | {"bill": rented.bill("0"), "simulated_usd": "0", "providers": [own], "runs": [run]}
        | {"no_cost": said, "unknown_cost_runs": 0, "budgets": []}
    )
    assert cli("cost") == 0
    assert f"1 run since 2026-03-01: {said}" in cli.out
    assert "$" not in cli.out


def test_runs_whose_cost_is_unknown_are_counted(cli: Cli, controller: FakeController) -> None:
    controller.answers["GET", COSTS] = Answer.of(rented.spent() | {"unknown_cost_runs": 2})
    assert cli("cost") == 0
    assert "2 runs with an unknown cost, no part of it" in cli.out


def test_a_run_whose_cost_is_not_stated_has_a_dash(cli: Cli, controller: FakeController) -> None:
    runs_of = [rented.spent()["runs"][0] | {"total_usd": usd} for usd in (None, "0.3")]
    spent = rented.spent() | {"runs": runs_of, "stated_usd": "0.3"}
    controller.answers["GET", COSTS] = Answer.of(spent)
    assert cli("cost") == 0
    first, second = cli.out.splitlines()[-2:]
    assert (first.split()[-1], second.split()[-1]) == ("–", "$0.30")
    assert "ingested runs state $0.30, which is no part of it" in cli.out


def test_what_was_spent_lately(cli: Cli, controller: FakeController) -> None:
    controller.answers["GET", COSTS] = Answer.of(rented.spent())
    assert cli("cost") == 0
    assert "1 run since 2026-03-01: $1.23" in cli.out
    assert controller.requests[-1].query == {}


def test_prices_are_read_anew_and_listed(cli: Cli, controller: FakeController) -> None:
    one = {
        "provider": "aws",
        "item": "g5.xlarge",
        "place": "us-east-1",
        "market": "on-demand",
        "usd_per_hour": "1.006",
        "as_of": runs.at(0),
        "source": "pricing API",
    }
    uncertain = {"price": one | {"usd_per_hour": "9"}, "reason": "too \x1b[31mdear"}
    told = {"kept": [one], "uncertain": [uncertain], "unread": {"gcp": "not signed in"}}
    controller.answers["POST", f"{COSTS}/refresh"] = Answer.of(told)
    controller.answers["GET", f"{COSTS}/prices"] = Answer.of({"items": [one]})
    assert cli("cost", "--refresh") == 0
    assert cli.out == ""
    assert "1 price read" in cli.err
    assert "not used: aws g5.xlarge us-east-1 on-demand $9.00: too dear" in cli.err
    assert "gcp keeps its prices: not signed in" in cli.err
    assert cli("cost", "--refresh", "--json") == 0
    cli_answers.check("seatrial cost --refresh", cli.out)
    assert json.loads(cli.out) == told
    none = {"kept": [], "uncertain": [], "unread": {"gcp": "not signed in"}}
    controller.answers["POST", f"{COSTS}/refresh"] = Answer.of(none)
    assert cli("cost", "--refresh") == 5
    assert "No provider told its prices." in cli.err
    assert cli("cost", "--prices") == 0
    assert "$1.006" in cli.out
    assert "pricing API" in cli.out
    controller.answers["GET", f"{COSTS}/prices"] = Answer.of({"items": []})
    assert cli("cost", "--prices") == 0
    assert cli.out == ""
    assert "No price is known" in cli.err


def test_show_says_why_a_machine_is_where_it_is(cli: Cli, controller: FakeController) -> None:
    controller.shown = runs.run(rented.simulated())
    assert cli("show", ID) == 0
    assert "refused us-east-1b/spot" in " ".join(cli.out.split())
    assert "SIMULATED: no gate accepts this" in cli.out


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_hold_is_part_of_the_order(cli: Cli, controller: FakeController, command: str) -> None:
    in_process.report_of(cli)
    controller.finish("passed")
    assert cli(command, str(cli.matrix), "--hold-on-failure", "30") == 0
    assert controller.sent("POST", "/api/v1/plan")[0].json["hold_minutes"] == 30
    if command == "run":
        assert controller.sent("POST", "/api/v1/runs")[0].json["hold_minutes"] == 30
    assert cli(command, str(cli.matrix), "--hold-on-failure", "1441") == 2


def test_a_plan_tells_what_to_ask_for(cli: Cli, controller: FakeController) -> None:
    short = rented.headroom("short")
    controller.answers["POST", "/api/v1/plan"] = Answer.of(plan() | {"headroom": [short]})
    assert cli("plan", str(cli.matrix)) == 0
    short_of = "short: aws needs 8 vCPU of G/VT spot in us-east-1, 4 free; ask L-3819A6DF for >= 12"
    assert short_of in " ".join(cli.out.split())
    answer = plan("cloud", "1.00") | {"headroom": [short]}
    controller.answers["POST", "/api/v1/plan"] = Answer.of(answer)
    assert cli("run", str(cli.matrix)) == 2
    assert "short: aws needs 8" in cli.err


def test_a_plan_with_a_cell_that_cannot_be_launched_ends_with_1(
    cli: Cli, controller: FakeController
) -> None:
    answer = plan("cloud", "1.00")
    unsold = plan("cloud", "0")["cells"][0] | {"id": "rare", "places": [], "note": "not sold"}
    answer["cells"].append(unsold)
    controller.answers["POST", "/api/v1/plan"] = Answer.of(answer)
    assert cli("plan", str(cli.matrix)) == 0  # what nobody sells ends as not available
    far = plan("cloud", "0")["cells"][0]
    far |= {"places": [], "note": "Unable to locate credentials", "worst_usd": None}
    far["cell"]["id"] = "far"
    answer["cells"].append(far)
    controller.answers["POST", "/api/v1/plan"] = Answer.of(answer)
    assert cli("plan", str(cli.matrix)) == 1
    assert "Unable to locate credentials" in cli.out
    assert cli.err.endswith("1 of 3 cells would get no machine as things are: far\n")
    assert cli("plan", str(cli.matrix), "--json") == 1


def test_a_plan_names_a_few_jobs_of_a_cell(cli: Cli, controller: FakeController) -> None:
    answer = plan("cloud", "1.00")
    answer["cells"][0]["cell"]["jobs"] = [f"job-{n}" for n in range(25)]
    controller.answers["POST", "/api/v1/plan"] = Answer.of(answer)
    assert cli("plan", str(cli.matrix)) == 0
    assert "job-0, job-1, job-2 and 22 more" in cli.out
    assert "job-3" not in cli.out
    assert "1 cell, 25 jobs" in cli.out


def test_a_plan_shows_the_check_of_each_host(cli: Cli, controller: FakeController) -> None:
    good = {"platform": "rack", "host": "me@red:22", "failure": "", "devices": ["nvidia L4"],
            "pythons": ["/usr/bin/python3 (3.11.2)"]}  # fmt: skip
    bad = good | {"host": "me@blue:22", "failure": "no connection"}
    controller.answers["POST", "/api/v1/plan"] = Answer.of(plan() | {"hosts": [good]})
    assert cli("plan", str(cli.matrix), "--check") == 0
    assert "me@red:22  ok: /usr/bin/python3 (3.11.2), nvidia L4" in cli.out
    controller.answers["POST", "/api/v1/plan"] = Answer.of(plan() | {"hosts": [good, bad]})
    assert cli("plan", str(cli.matrix), "--check") == 1
    assert "me@blue:22" in cli.out
    controller.answers["POST", "/api/v1/plan"] = Answer.of(plan())
    assert cli("plan", str(cli.matrix), "--check") == 0
    assert "no hosts of your own" in cli.out


def test_running_again_asks_before_it_rents(cli: Cli, controller: FakeController) -> None:
    in_process.report_of(cli)
    controller.finish("passed")
    controller.answers["POST", f"{SHOWN}/rerun/plan"] = Answer.of(plan("cloud", "1.00"))
    controller.answers["POST", f"{SHOWN}/rerun"] = Answer.of(controller.shown, 202)
    assert cli("rerun", ID, "--only", "failed", "--hold-on-failure", "30") == 2
    assert "at most $1.00 an attempt, and there is no terminal to ask on: say -y" in cli.err
    assert controller.sent("POST", f"{SHOWN}/rerun") == []
    assert cli("rerun", ID, "--only", "failed", "--hold-on-failure", "30", "-y") == 0
    body = {"only": "failed", "hold_minutes": 30}
    for path in (f"{SHOWN}/rerun/plan", f"{SHOWN}/rerun"):
        assert controller.sent("POST", path)[-1].json == body


def test_what_nobody_sells_is_not_said_to_be_rented(cli: Cli, controller: FakeController) -> None:
    answer = plan("cloud", "1.00")
    unsold = plan("cloud", "0")["cells"][0] | {"id": "rare", "places": [], "note": "not sold"}
    answer["cells"].append(unsold)
    controller.answers["POST", "/api/v1/plan"] = Answer.of(answer)
    assert cli("run", str(cli.matrix)) == 2
    assert "\nlocal-cpu would be rented, at most $1.00 an attempt" in cli.err


def test_a_limit_that_is_too_low_is_said_before(cli: Cli, controller: FakeController) -> None:
    low = plan("cloud", "1.46") | {"max_usd": "0.01"}
    controller.answers["POST", "/api/v1/plan"] = Answer.of(low)
    assert cli("plan", str(cli.matrix)) == 0
    assert "short: limits.max_usd is $0.01, but one attempt of every cell may cost" in cli.out
    unknown = low | {"worst_usd": None}  # another cell's price is not known
    controller.answers["POST", "/api/v1/plan"] = Answer.of(unknown)
    assert cli("plan", str(cli.matrix)) == 0
    assert "one attempt of every cell may cost $1.46" in cli.out
    controller.answers["POST", "/api/v1/plan"] = Answer.of(low | {"max_usd": "1.46"})
    assert cli("plan", str(cli.matrix)) == 0
    assert "short" not in cli.out


SSH = """\
#!{python}
import os, signal, stat, sys, time
args = sys.argv[1:]
key = args[args.index("-i") + 1]
known = next(a.split("=", 1)[1].strip('"') for a in args if a.startswith("UserKnownHostsFile="))
modes = [oct(stat.S_IMODE(os.stat(p).st_mode)) for p in (os.path.dirname(known), key, known)]
with open({seen!r}, "w") as out:
    print(*modes, sep=" ", file=out)
    print(open(known).read().strip(), file=out)
    print(repr(open(key).read()), file=out)
    print(os.path.dirname(known), file=out)
    print(repr(args), file=out)
if args[-1] == "sleep":
    time.sleep(60)
sys.exit(17)
"""


@pytest.fixture
def seen(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a program named ssh, the only one on PATH, says what it was given."""
    folder, path = cli.folder / "bin", cli.folder / "seen"
    folder.mkdir()
    program = folder / "ssh"
    program.write_text(SSH.format(python=sys.executable, seen=str(path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return path


def gives(controller: FakeController, **given: object) -> None:
    path = f"{SHOWN}/cells/gcp-l4/access"
    controller.answers["GET", path] = Answer.of(ACCESS | given)


def test_ssh_gets_the_one_key_and_the_one_host_key(
    cli: Cli, controller: FakeController, seen: Path
) -> None:
    gives(controller)
    assert cli("ssh", ID, "gcp-l4", "--", "nvidia-smi", "-L") == 17
    modes, known, key, folder, args = seen.read_text().splitlines()
    assert modes == "0o700 0o600 0o600"
    assert known == "[203.0.113.7]:2222 ssh-ed25519 AAAAC3Nza"
    assert key == repr(ACCESS["private_key"])
    for wanted in (
        "'StrictHostKeyChecking=yes'",
        "'IdentitiesOnly=yes'",
        "'GlobalKnownHostsFile=/dev/null'",
        "'ControlPath=none'",
        "'-p', '2222', '-l', 'ubuntu', '--', '203.0.113.7', 'nvidia-smi', '-L'",
    ):
        assert wanted in args
    assert not Path(folder).exists()
    assert "secret" not in cli.out + cli.err + args


def test_the_key_of_an_own_machine_stays_where_it_is(
    cli: Cli, controller: FakeController, seen: Path
) -> None:
    gives(controller, private_key="", key_file="id_ed25519", port=22)
    assert cli("ssh", ID, "gcp-l4") == 2
    assert "id_ed25519 is not there" in cli.err
    keys = cli.wiring.settings.home / "keys"
    keys.mkdir()
    (keys / "id_ed25519").write_text("mine")
    assert cli("ssh", ID, "gcp-l4") == 17
    assert (keys / "id_ed25519").read_text() == "mine"
    assert seen.read_text().splitlines()[1] == "203.0.113.7 ssh-ed25519 AAAAC3Nza"
    assert str(keys / "id_ed25519") in seen.read_text()


def test_without_ssh_there_is_a_sentence(
    cli: Cli, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    gives(controller)
    monkeypatch.setenv("PATH", str(cli.folder))
    assert cli("ssh", ID, "gcp-l4") == 2
    assert "There is no `ssh`" in cli.err
    assert controller.sent("GET", f"{SHOWN}/cells/gcp-l4/access") == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("address", "-oProxyCommand=touch x"),
        ("address", "a b"),
        ("user", "-x"),
        ("user", "root;x"),
        ("host_key", "ssh-ed25519 AAAA\n* ssh-ed25519 BBBB"),
        ("key_file", "../../etc/passwd"),
        ("port", 0),
    ],
)
def test_an_answer_cannot_become_an_option(
    cli: Cli, controller: FakeController, seen: Path, field: str, value: object
) -> None:
    gives(controller, **{field: value})
    assert cli("ssh", ID, "gcp-l4") == 2
    assert "secret" not in cli.err
    assert not seen.exists()


def test_a_cell_without_a_machine_says_so(cli: Cli, controller: FakeController, seen: Path) -> None:
    path = f"{SHOWN}/cells/gcp-l4/access"
    controller.answers["GET", path] = Answer.problem(409, "cell gcp-l4 holds no machine")
    assert cli("ssh", ID, "gcp-l4") == 2
    assert "holds no machine" in cli.err
    assert cli("ssh", ID, "gcp-l") == 2
    assert "did you mean 'gcp-l4'?" in cli.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_no_key_behind(
    cli: Cli, controller: FakeController, seen: Path, number: signal.Signals
) -> None:
    gives(controller)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SEATRIAL_")}
    environment |= {
        "SEATRIAL_HOME": str(cli.wiring.settings.home),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-m", "orchestrator", "ssh", ID, "gcp-l4", "--", "sleep"]
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            folder = _told(seen)
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            process.send_signal(number)
            assert process.wait(60) == 128 + number
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert not folder.exists()


def _told(seen: Path) -> Path:
    end = time.monotonic() + 120
    while not (seen.exists() and len(seen.read_text().splitlines()) == 5):
        assert time.monotonic() < end, "ssh was not started"
        time.sleep(0.05)
    return Path(seen.read_text().splitlines()[3])
