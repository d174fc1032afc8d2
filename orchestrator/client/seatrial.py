"""Python client of a controller: one method for each request."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self
from urllib.parse import quote

from orchestrator.client.failure_requests import FailureRequests
from orchestrator.client.gate_requests import GateRequests
from orchestrator.client.run_requests import LATEST, RunRequests
from orchestrator.client.transport import Answer, AnswerList, newest
from orchestrator.domain.audit import AuditVerification, ChainedEntry
from orchestrator.domain.caller_identity import BrowserSession, NewToken, Token
from orchestrator.domain.catalogue import PlatformResponse
from orchestrator.domain.channel import (
    ChannelResponse,
    DeliveryReceipt,
    DeliveryResponse,
    NewChannelResponse,
    RenewedResponse,
)
from orchestrator.domain.cost_response import RunCost, Spending
from orchestrator.domain.inventory import InventoryResponse, ResourceResponse, StopReport
from orchestrator.domain.prices import Price, Refreshed
from orchestrator.domain.retention import PruneReport
from orchestrator.domain.schedule import Firing, ScheduleResponse


class Seatrial(RunRequests, GateRequests, FailureRequests):
    """Client of one controller; only one thread at a time may use it.

    Runs are named by their id, the beginning of their id, or ``latest``. Methods that cost
    money or change a run accept a key: a second request with the same key changes nothing and
    returns the answer of the first one. Without a key, one is made for each call, so that its
    own retries are safe. `document` is the name of the file in messages about the file.

    Raises NoControllerError if no controller answers. Raises RefusalError, with the
    controller's message and the HTTP status, if the controller refuses the request.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def machines(self, *, orphans: bool = False) -> Answer[InventoryResponse]:
        """Return the project's cloud resources; with `orphans`, only those without an owner."""
        answer = self.get("/machines", orphans="true" if orphans else None)
        return Answer(answer, InventoryResponse)

    def terminate_machine(self, provider: str, machine: str) -> Answer[ResourceResponse]:
        """Terminate a machine without an owner; `cancel` of its run releases a leased one.

        A machine without an owner has no open lease, and belongs to no other controller before its
        expiry.
        """
        path = f"/machines/{quote(provider, safe='')}/{quote(machine, safe='/')}/terminate"
        return Answer(self.post(path), ResourceResponse)

    def terminate_all(self) -> Answer[StopReport]:
        """Cancel every run and terminate every machine.

        Repeat the call until the report has no items.
        """
        return Answer(self.post("/machines/terminate-all"), StopReport)

    def run_cost(self, name: str = LATEST) -> Answer[RunCost]:
        """Return the bill of a run."""
        return Answer(self.get("/costs", run=self.run(name).record.id), RunCost)

    def costs(self, *, days: int | None = None) -> Answer[Spending]:
        """Return the costs of the runs of the last days, and the use of the budgets.

        `days` is 30 by default.
        """
        return Answer(self.get("/costs", days=days), Spending)

    def prices(self) -> AnswerList[Price]:
        """Return the current prices."""
        return AnswerList(self.get("/costs/prices"), Price)

    def refresh_prices(self) -> Answer[Refreshed]:
        """Read the prices from the providers again; an uncertain price replaces no stored one."""
        return Answer(self.post("/costs/refresh"), Refreshed)

    def platforms(self) -> AnswerList[PlatformResponse]:
        """Return the providers, with the allowed keys of their platforms."""
        return AnswerList(self.get("/platforms"), PlatformResponse)

    def channels(self) -> AnswerList[ChannelResponse]:
        """Return the channels with their health."""
        return AnswerList(self.get("/channels"), ChannelResponse)

    def add_channel(
        self,
        name: str,
        target: str,
        *,
        kind: str = "webhook",
        lineages: Collection[str] = (),
        allow_private: bool = False,
        token_from: str = "",
        api_base: str | None = None,
    ) -> Answer[NewChannelResponse]:
        """Add a channel. Only this answer contains its signing secret.

        Args:
            name: Its name: letters, digits, ``.``, ``_`` and ``-``.
            target: A URL; ``owner/repository`` for ``github``.
            kind: ``webhook``, ``slack`` or ``github``.
            lineages: Patterns of the lineages that the channel is notified of; all by default.
            allow_private: Whether the receiver may be in a private network.
            token_from: Where the controller finds GitHub's token: ``env:NAME`` or ``file:NAME``.
            api_base: The URL of the API of a GitHub Enterprise server.
        """
        body: dict[str, object] = {"name": name, "target": target, "kind": kind}
        body |= {"lineages": [*lineages], "allow_private": allow_private}
        body |= {"token_from": token_from} | ({"api_base": api_base} if api_base else {})
        return Answer(self.post("/channels", body), NewChannelResponse)

    def test_channel(self, channel: str, *, commit: str = "") -> Answer[DeliveryReceipt]:
        """Send a test message now; with a commit, set a status of that commit on GitHub."""
        body = {"git_sha": commit}
        return Answer(self.post(f"{_channel_path(channel)}/test", body), DeliveryReceipt)

    def rotate_channel(self, channel: str, *, overlap_hours: float = 24) -> Answer[RenewedResponse]:
        """Create a new signing secret; the old one stays valid for `overlap_hours`."""
        body = {"overlap_hours": overlap_hours}
        return Answer(self.post(f"{_channel_path(channel)}/rotate", body), RenewedResponse)

    def remove_channel(self, channel: str) -> None:
        """Delete a channel; its waiting deliveries are discarded."""
        self.delete(_channel_path(channel))

    def deliveries(self, channel: str, *, limit: int = 20) -> AnswerList[DeliveryResponse]:
        """Return the deliveries to a channel, newest first."""
        path = f"{_channel_path(channel)}/deliveries"
        return AnswerList({"items": [*newest(self, path, limit=limit)]}, DeliveryResponse)

    def tokens(self) -> AnswerList[Token]:
        """Return the tokens, without their secrets."""
        return AnswerList(self.every("/tokens"), Token)

    def create_token(self, name: str, scope: str, *, days: int | None = 90) -> Answer[NewToken]:
        """Create a token. Only this answer contains its secret.

        Args:
            name: The owner's name.
            scope: ``read``, ``run``, ``gate`` or ``admin``; each includes the ones before it.
            days: Number of days until it expires; None for never.
        """
        body = {"name": name, "scope": scope, "days": days}
        return Answer(self.post("/tokens", body), NewToken)

    def revoke_token(self, token: str) -> None:
        """Revoke the token with this id."""
        self.delete(f"/tokens/{quote(token, safe='')}")

    def sessions(self) -> AnswerList[BrowserSession]:
        """Return the sessions of the signed-in browsers."""
        return AnswerList(self.every("/sessions"), BrowserSession)

    def revoke_session(self, session: str) -> None:
        """Revoke a browser session, so that the browser has to sign in again."""
        self.delete(f"/sessions/{quote(session, safe='')}")

    def audit_entries(
        self,
        *,
        limit: int = 50,
        since: str | None = None,
        actor: str | None = None,
        resource: str | None = None,
    ) -> Iterator[Answer[ChainedEntry]]:
        """Yield the entries of the audit log, newest first.

        Args:
            limit: Maximum number of entries.
            since: Only entries at or after this time, in RFC 3339.
            actor: Only changes by the owner of this token.
            resource: Only changes of this path, such as ``schedules`` or ``schedules/nightly``.
        """
        asked = {"since": since, "actor": actor, "resource": resource}
        for entry in newest(self, "/audit", limit=limit, **asked):
            yield Answer(entry, ChainedEntry)

    @contextmanager
    def audit_export(
        self, *, since: str | None = None, actor: str | None = None, resource: str | None = None
    ) -> Iterator[Iterator[str]]:
        """Open the audit log as JSON lines, oldest first; usable as a context manager.

        The filters are those of `audit_entries`.
        """
        asked = {"since": since, "actor": actor, "resource": resource}
        with self.stream("/audit/export", params=asked) as answer:
            yield answer.iter_text()

    def verify_audit(self, *, head: str | None = None) -> Answer[AuditVerification]:
        """Verify the audit log: whether every entry is as it was written.

        `head` is a digest that was printed earlier; an entry must still have it.
        """
        return Answer(self.get("/audit/verification", head=head), AuditVerification)

    def preview_prune(self, *, days: int | None = None) -> Answer[PruneReport]:
        """Return a report of everything that `prune` would remove."""
        return Answer(self.get("/prune", days=days), PruneReport)

    def prune(self, *, days: int | None = None) -> Answer[PruneReport]:
        """Remove everything that the retention policy does not keep.

        Repeat the call until `is_complete`. `days` limits every period of the policy,
        except for what the policy keeps for ever.
        """
        body = {} if days is None else {"days": days}
        return Answer(self.post("/prune", body), PruneReport)

    def schedules(self) -> AnswerList[ScheduleResponse]:
        """Return the schedules, with their firings."""
        return AnswerList(self.every("/schedules"), ScheduleResponse)

    def schedule(self, name: str) -> Answer[ScheduleResponse]:
        """Return a schedule with its firings."""
        return Answer(self.get(_schedule_path(name)), ScheduleResponse)

    def add_schedule(
        self, body: Mapping[str, object], *, replaces: bool = False, document: str = ""
    ) -> Answer[ScheduleResponse]:
        """Add a schedule; with `replaces`, change the schedule of that name.

        `body` is the body of ``POST /schedules``.
        """
        if replaces:
            answer = self.put(_schedule_path(str(body["name"])), body, document=document)
        else:
            answer = self.post("/schedules", body, document=document)
        return Answer(answer, ScheduleResponse)

    def pause_schedule(self, name: str) -> Answer[ScheduleResponse]:
        """Pause a schedule; the firings in progress continue."""
        return Answer(self.post(f"{_schedule_path(name)}/pause"), ScheduleResponse)

    def resume_schedule(self, name: str) -> Answer[ScheduleResponse]:
        """Resume a schedule; missed firings are not repeated."""
        return Answer(self.post(f"{_schedule_path(name)}/resume"), ScheduleResponse)

    def trigger_schedule(self, name: str) -> Answer[Firing]:
        """Fire a schedule now, even if it is paused."""
        return Answer(self.post(f"{_schedule_path(name)}/trigger"), Firing)

    def remove_schedule(self, name: str) -> None:
        """Delete a schedule and its firings; its runs and verdicts are kept."""
        self.delete(_schedule_path(name))


def _channel_path(name: str) -> str:
    return f"/channels/{quote(name, safe='')}"


def _schedule_path(name: str) -> str:
    return f"/schedules/{quote(name, safe='')}"
