"""The addresses of pages: the one place that knows them."""

from __future__ import annotations

from urllib.parse import quote, urlencode

BOARD = "/"
PRODUCTS = "/products"
RUNS = "/runs"
LAUNCH = "/launch"
GRID = "/grid"
TESTS = "/tests"
FAILURES = "/failures"
FLAKY = "/flaky"
COMPARE = "/compare"
BENCHMARKS = "/benchmarks"
GATES = "/gates"
COSTS = "/costs"
MACHINES = "/machines"
KNOWN_ISSUES = "/known-issues"
SCHEDULES = "/schedules"
SIGN_IN = "/login"
SIGN_OUT = "/logout"
API = "/api/v1"
LOG = "/runs/{run}/cells/{cell}/log"
LOG_RAW = f"{LOG}/raw"
LOG_LINE = f"{LOG}/lines/{{line}}"
KEYRING = f"{API}/keyring"
SUFFIXES = ("json", "csv", "md")
"""What an address ends with for the other formats of its page."""
CHANNEL_TEST = "/channels/{channel}/test"


def run_url(run: str) -> str:
    """A run."""
    return f"{RUNS}/{_part(run)}"


def slowest_url(run: str) -> str:
    """The tests of a run that took longest."""
    return f"{run_url(run)}/slowest"


def cell_url(run: str, cell: str) -> str:
    """The tests of a cell."""
    return f"{run_url(run)}/cells/{_part(cell)}"


def result_url(run: str, cell: str, test: int) -> str:
    """Return the URL of one test's result in a cell."""
    return f"{cell_url(run, cell)}/tests/{test}"


def log_url(run: str, cell: str) -> str:
    """The log of a cell."""
    return f"{cell_url(run, cell)}/log"


def log_line_url(run: str, cell: str, line: int) -> str:
    """One line of it, however long."""
    return f"{log_url(run, cell)}/lines/{line}"


def log_raw_url(run: str, cell: str) -> str:
    """All of it, as it came."""
    return f"{log_url(run, cell)}/raw"


def events_url(run: str) -> str:
    """Return the URL of a run's event stream."""
    return f"{API}/runs/{_part(run)}/events"


def report_url(run: str, kind: str, cell: str = "") -> str:
    """A report as the API renders it."""
    return with_query(f"{API}/runs/{_part(run)}/reports/{_part(kind)}.html", cell=cell)


def export_url(run: str, form: str, cell: str = "") -> str:
    """Results in the form of another program."""
    return with_query(f"{API}/runs/{_part(run)}/export/{_part(form)}", cell=cell)


def artifact_url(run: str, cell: str, name: str) -> str:
    """An artifact of a cell."""
    return f"{API}/runs/{_part(run)}/cells/{_part(cell)}/artifacts/{_part(name)}"


def end_machine_url(provider: str, machine: str) -> str:
    """Return the URL that terminates an orphaned machine."""
    return f"{MACHINES}/{_part(provider)}/{_part(machine)}/terminate"


def grid_url(**asked: str) -> str:
    """Tests by runs."""
    return with_query(GRID, **asked)


def test_url(test: int) -> str:
    """The history of a test."""
    return f"{TESTS}/{test}"


def signature_url(signature: str) -> str:
    """One kind of failure."""
    return f"{FAILURES}/{_part(signature)}"


def compare_url(old: str, new: str) -> str:
    """Two runs beside each other."""
    return with_query(COMPARE, a=old, b=new)


def benchmark_url(job: str, metric: str) -> str:
    """A benchmark over time."""
    return f"{BENCHMARKS}/{_part(job)}/{_part(metric)}"


def gate_url(gate: str) -> str:
    """A gate."""
    return f"{GATES}/{_part(gate)}"


def waivers_url(gate: str) -> str:
    """Return the URL that adds waivers to a gate."""
    return f"{gate_url(gate)}/waivers"


def approve_waiver_url(gate: str, waiver: str) -> str:
    """Return the URL that approves a waiver."""
    return f"{waivers_url(gate)}/{_part(waiver)}/approve"


def approvals_url(gate: str) -> str:
    """Return the URL that approves evidence of a gate."""
    return f"{gate_url(gate)}/approvals"


def evaluate_url(gate: str) -> str:
    """Return the URL that makes a gate decide."""
    return f"{gate_url(gate)}/verdicts"


def dry_run_url(gate: str) -> str:
    """Return the address of a dry run of the gate."""
    return f"{gate_url(gate)}/dry-run"


def verdict_url(verdict: str) -> str:
    """A verdict."""
    return f"/verdicts/{_part(verdict)}"


def badge_url(gate: str) -> str:
    """The picture of a gate's decision, for READMEs."""
    return f"/badges/{_part(gate)}.svg"


def channel_test_url(channel: str) -> str:
    """Return the URL that tests a channel."""
    return CHANNEL_TEST.format(channel=_part(channel))


def verdict_file_url(verdict: str, part: str) -> str:
    """Return the API's URL of a part of a verdict: ``statement``, ``evidence``, ``replay``."""
    return f"{API}/verdicts/{_part(verdict)}/{part}"


def schedule_url(name: str) -> str:
    """A schedule."""
    return f"{SCHEDULES}/{_part(name)}"


def act_url(schedule: str, verb: str) -> str:
    """Return the URL that pauses, resumes, triggers or removes a schedule."""
    return f"{schedule_url(schedule)}/{verb}"


def end_issue_url(issue: str) -> str:
    """Return the URL that ends a known issue."""
    return f"{KNOWN_ISSUES}/{_part(issue)}/end"


def end_quarantine_url(quarantine: str) -> str:
    """Return the URL that ends a quarantine."""
    return f"{FLAKY}/{_part(quarantine)}/end"


def with_query(path: str, /, **asked: str) -> str:
    """Return a URL with its query; empty values are left out."""
    query = urlencode({name: value for name, value in asked.items() if value})
    return f"{path}?{query}" if query else path


def as_page(path: str) -> str:
    """The address of the page itself, where its name ends as that of another format would."""
    if path.endswith(tuple(f".{suffix}" for suffix in SUFFIXES)):
        return "%2E".join(path.rsplit(".", 1))
    return path


def _part(name: str) -> str:
    """A name as one part of a path."""
    return as_page(quote(name, safe=""))
