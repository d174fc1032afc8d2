"""Requests to a controller about failures: known issues, quarantines, histories of tests."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from datetime import date
from typing import Literal
from urllib.parse import quote

from orchestrator.client.transport import Answer, AnswerList, Client, Json
from orchestrator.domain.benchmark_series import BenchmarkSeries
from orchestrator.domain.failure_signature import FailureGroupListResponse
from orchestrator.domain.flaky import HistoryResponse
from orchestrator.domain.known_issue import IssueMatch, IssueScope, KnownIssueResponse
from orchestrator.domain.node_ids import Alias, KnownTestResponse, Matching
from orchestrator.domain.quarantine import QuarantineResponse, SuggestedQuarantine

_EVERYWHERE = IssueScope()


class FailureRequests(Client):
    """Requests about failures and tests over many runs."""

    def failure_groups(
        self, run: str | None = None, *, product: str | None = None, runs: int | None = None
    ) -> Answer[FailureGroupListResponse]:
        """Return the failure groups of a run, or of the newest runs (50 by default)."""
        answer = self.get("/failure-groups", run=run, product=product, runs=runs)
        return Answer(answer, FailureGroupListResponse)

    def known_issues(self, product: str | None = None) -> AnswerList[KnownIssueResponse]:
        """Return the known issues of one product or of all, with the expired ones."""
        return AnswerList(self.every("/known-issues", product=product), KnownIssueResponse)

    def add_known_issue(
        self,
        product: str,
        title: str,
        *,
        owner: str,
        expires: date,
        match: IssueMatch,
        scope: IssueScope = _EVERYWHERE,
        url: str = "",
        max_failures: int | None = None,
    ) -> Answer[KnownIssueResponse]:
        """Add a known issue. It explains failures, and changes no count.

        Args:
            product: The payload's name.
            title: One line that says what is wrong.
            owner: The name of the person who fixes it.
            expires: The last day on which it applies.
            match: The failures that it explains.
            scope: The platforms, jobs and versions that it applies to.
            url: The URL of the issue in a tracker.
            max_failures: Maximum results of a run that it explains; further ones are new failures.
        """
        body: Json = {"product": product, "title": title, "owner": owner, "url": url}
        body |= {"expires": str(expires), "match": asdict(match), "scope": asdict(scope)}
        body |= {"max_failures": max_failures}
        return Answer(self.post("/known-issues", body), KnownIssueResponse)

    def expire_known_issue(self, issue: str) -> Answer[KnownIssueResponse]:
        """End a known issue now."""
        path = f"/known-issues/{quote(issue, safe='')}/expire"
        return Answer(self.post(path), KnownIssueResponse)

    def quarantines(self, product: str | None = None) -> AnswerList[QuarantineResponse]:
        """Return the quarantines of one product or of all, with the expired ones."""
        return AnswerList(self.every("/quarantines", product=product), QuarantineResponse)

    def add_quarantine(
        self,
        product: str,
        nodeid: str,
        *,
        reason: str,
        owner: str,
        days: int,
        platforms: Collection[str] = (),
        returns_after: int = 20,
    ) -> Answer[QuarantineResponse]:
        """Put a flaky test in quarantine; its failures stay failures in every count.

        Args:
            product: The payload's name.
            nodeid: The test's node id.
            reason: Why the test is flaky, as far as is known.
            owner: The name of the person who fixes it.
            days: Number of days until the quarantine expires.
            platforms: The platforms on which it applies; all by default.
            returns_after: Number of passes in a row, on each platform, that end the quarantine.
        """
        body: Json = {"product": product, "nodeid": nodeid, "reason": reason, "owner": owner}
        body |= {"days": days, "platforms": [*platforms], "returns_after": returns_after}
        return Answer(self.post("/quarantines", body), QuarantineResponse)

    def end_quarantine(self, quarantine: str) -> Answer[QuarantineResponse]:
        """End a quarantine now."""
        path = f"/quarantines/{quote(quarantine, safe='')}/end"
        return Answer(self.post(path), QuarantineResponse)

    def suggested_quarantines(self, product: str | None = None) -> AnswerList[SuggestedQuarantine]:
        """Return the flaky tests for which a quarantine is suggested."""
        path = "/quarantines/suggestions"
        return AnswerList(self.get(path, product=product), SuggestedQuarantine)

    def known_tests(
        self, product: str, *, job: str | None = None, contains: str | None = None
    ) -> AnswerList[KnownTestResponse]:
        """Return the tests of a product.

        `job` and `contains`, a part of the node id, are optional filters.
        """
        answer = self.every("/tests", product=product, job=job, contains=contains)
        return AnswerList(answer, KnownTestResponse)

    def test_history(self, test: int, *, limit: int | None = None) -> Answer[HistoryResponse]:
        """Return the newest results of a test under all its names; `limit` is 200 by default."""
        return Answer(self.get(f"/tests/{test}/history", limit=limit), HistoryResponse)

    def benchmark_series(
        self,
        benchmark: str,
        *,
        product: str | None = None,
        platform: str | None = None,
        runs: int | None = None,
    ) -> AnswerList[BenchmarkSeries]:
        """Return the values of a benchmark (``job/metric``) over the newest runs, by platform."""
        path = f"/benchmarks/{quote(benchmark, safe='/')}/series"
        answer = self.get(path, product=product, platform=platform, runs=runs)
        return AnswerList(answer, BenchmarkSeries)

    def aliases(self, product: str | None = None, *, state: str | None = None) -> AnswerList[Alias]:
        """Return the aliases of tests.

        `state` selects the ``suggested``, ``confirmed`` or ``rejected`` ones.
        """
        return AnswerList(self.every("/aliases", product=product, state=state), Alias)

    def match_tests(self, old: str, new: str) -> Answer[Matching]:
        """Compare the tests of two runs, and suggest aliases; no tests are merged."""
        return Answer(self.post("/aliases", {"old_run": old, "new_run": new}), Matching)

    def decide_alias(
        self, alias: int, decision: Literal["confirm", "reject", "undo"]
    ) -> Answer[Alias]:
        """Confirm or reject a suggested alias, or undo an earlier decision."""
        return Answer(self.post(f"/aliases/{alias}/{decision}"), Alias)
