"""The URLs of all pages; no other module builds them."""

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
AUDIT = "/audit"
KNOWN_ISSUES = "/known-issues"
SCHEDULES = "/schedules"
SIGN_IN = "/login"
SIGN_IN_AT_ISSUER = "/login/oidc"
SIGNED_IN_AT_ISSUER = f"{SIGN_IN_AT_ISSUER}/callback"
SIGN_OUT = "/logout"
API = "/api/v1"
LOG = "/runs/{run}/cells/{cell}/log"
LOG_RAW = f"{LOG}/raw"
LOG_LINE = f"{LOG}/lines/{{line}}"
KEYRING = f"{API}/keyring"
SUFFIXES = ("json", "csv", "md")
"""Endings of a page's address, by format."""
CHANNEL_TEST = "/channels/{channel}/test"
RESOURCES = {
    LAUNCH: "/runs",
    FLAKY: "/quarantines",
    f"{FLAKY}/{{quarantine}}/end": "/quarantines/{quarantine}/end",
    f"{GATES}/{{gate}}/waivers": "/waivers",
    f"{GATES}/{{gate}}/waivers/{{waiver}}/approve": "/waivers/{waiver}/approve",
    f"{GATES}/{{gate}}/approvals": "/approvals",
}
"""REST paths of the resources that forms change, if they differ from the pages' paths."""


def run_url(run: str) -> str:
    """Return the URL of a run's page."""
    return f"{RUNS}/{_part(run)}"


def slowest_url(run: str) -> str:
    """Return the URL of a run's slowest tests."""
    return f"{run_url(run)}/slowest"


def cell_url(run: str, cell: str) -> str:
    """Return the URL of a cell's page."""
    return f"{run_url(run)}/cells/{_part(cell)}"


def result_url(run: str, cell: str, test: int) -> str:
    """Return the URL of one test's result in a cell."""
    return f"{cell_url(run, cell)}/tests/{test}"


def log_url(run: str, cell: str) -> str:
    """Return the URL of a cell's log."""
    return f"{cell_url(run, cell)}/log"


def log_line_url(run: str, cell: str, line: int) -> str:
    """Return the URL of one line of a log."""
    return f"{log_url(run, cell)}/lines/{line}"


def log_raw_url(run: str, cell: str) -> str:
    """Return the URL of a log's raw bytes."""
    return f"{log_url(run, cell)}/raw"


def events_url(run: str) -> str:
    """Return the URL of a run's event stream."""
    return f"{API}/runs/{_part(run)}/events"


def report_url(run: str, kind: str, cell: str = "") -> str:
    """Return the URL of a report in REST."""
    return with_query(f"{API}/runs/{_part(run)}/reports/{_part(kind)}.html", cell=cell)


def export_url(run: str, form: str, cell: str = "") -> str:
    """Return the URL of an export in REST."""
    return with_query(f"{API}/runs/{_part(run)}/export/{_part(form)}", cell=cell)


def artifact_url(run: str, cell: str, name: str) -> str:
    """Return the URL of a cell's artifact."""
    return f"{API}/runs/{_part(run)}/cells/{_part(cell)}/artifacts/{_part(name)}"


def end_machine_url(provider: str, machine: str) -> str:
    """Return the URL that terminates an orphaned machine."""
    return f"{MACHINES}/{_part(provider)}/{_part(machine)}/terminate"


def grid_url(**asked: str) -> str:
    """Return the URL of the grid of tests by runs."""
    return with_query(GRID, **asked)


def test_url(test: int) -> str:
    """Return the URL of a test's history."""
    return f"{TESTS}/{test}"


def signature_url(signature: str) -> str:
    """Return the URL of a failure group."""
    return f"{FAILURES}/{_part(signature)}"


def compare_url(old: str, new: str) -> str:
    """Return the URL of the comparison of two runs."""
    return with_query(COMPARE, a=old, b=new)


def benchmark_url(job: str, metric: str) -> str:
    """Return the URL of a benchmark's trend."""
    return f"{BENCHMARKS}/{_part(job)}/{_part(metric)}"


def gate_url(gate: str) -> str:
    """Return the URL of a gate."""
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
    """Return the URL to which a POST evaluates the gate and stores a verdict."""
    return f"{gate_url(gate)}/verdicts"


def dry_run_url(gate: str) -> str:
    """Return the address of a dry run of the gate."""
    return f"{gate_url(gate)}/dry-run"


def verdict_url(verdict: str) -> str:
    """Return the URL of a verdict."""
    return f"/verdicts/{_part(verdict)}"


def badge_url(gate: str) -> str:
    """Return the URL of a gate's badge, for READMEs."""
    return f"/badges/{_part(gate)}.svg"


def channel_test_url(channel: str) -> str:
    """Return the URL that tests a channel."""
    return CHANNEL_TEST.format(channel=_part(channel))


def verdict_file_url(verdict: str, part: str) -> str:
    """Return the API's URL of a part of a verdict: ``statement``, ``evidence``, ``replay``."""
    return f"{API}/verdicts/{_part(verdict)}/{part}"


def schedule_url(name: str) -> str:
    """Return the URL of a schedule."""
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
    """Return the path with its last dot encoded where it ends like a format's suffix."""
    if path.endswith(tuple(f".{suffix}" for suffix in SUFFIXES)):
        return "%2E".join(path.rsplit(".", 1))
    return path


def _part(name: str) -> str:
    """Return a name, percent-encoded as one segment of a path."""
    return as_page(quote(name, safe=""))
