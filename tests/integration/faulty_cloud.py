"""A cloud that forgets, hesitates, goes deaf and loses its answers; its own meter never errs.

It has two regions of two zones of two markets. The same token in the same zone is the same
machine for ever; in another zone it is a second one. What happens, and when, is decided when a
machine is made, from a `Script`; time is the hand clock's alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from orchestrator.domain.machine import (
    FakeEndpoint,
    LaunchRequest,
    Machine,
    MachineState,
    Place,
    ProviderUnavailableError,
)
from tests.integration.faulty_script import (
    BEGIN,
    NEVER,
    REMEMBERED_S,
    Answer,
    Fate,
    Flavour,
    HandClock,
    Script,
    Thing,
    Verb,
)


@dataclass(slots=True)
class ClumsyCloud:
    """The things of all controllers, and the script of what goes wrong."""

    script: Script
    clock: HandClock
    things: dict[str, Thing] = field(default_factory=dict)
    marks: Counter[str] = field(default_factory=Counter)
    """What happened, by name: the coverage of a history."""
    calls: list[tuple[str, ...]] = field(default_factory=list)
    """Every call of every line, in order."""
    by_key: dict[tuple[str, str], list[Thing]] = field(default_factory=dict)
    """Machines by idempotency key and zone."""
    _in_flight: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    _launches: int = 0
    _waits: int = 0

    @property
    def machines(self) -> list[Thing]:
        """Every machine that ever was."""
        return [thing for thing in self.things.values() if thing.is_machine]

    def left(self) -> list[Thing]:
        """What is there now, of every kind."""
        self.catch_up()
        now = self.clock.seconds
        return [thing for thing in self.things.values() if now < thing.gone_at()]

    def is_out(self, verb: Verb) -> bool:
        """Whether the verb is unavailable now."""
        now = self.clock.seconds
        mine = (x for x in self.script.outages if x.verb is verb)
        return any(x.begins_s <= now < x.begins_s + x.lasts_s for x in mine)

    def next_answer(self) -> Answer:
        """What the next launch call meets."""
        self._launches += 1
        answers = self.script.answers
        return answers[self._launches - 1] if self._launches <= len(answers) else Answer.OK

    def next_delay_s(self) -> float:
        """How long the next call takes."""
        self._waits += 1
        waits = self.script.delays_s
        return waits[self._waits - 1] if self._waits <= len(waits) else 0.0

    def send(self, effect: Callable[[], object], *, after_s: float) -> None:
        """A request is under way whose sender will not hear the answer."""
        self._in_flight.append((self.clock.seconds + after_s, effect))

    def catch_up(self) -> None:
        """Let every request that is under way arrive, if its time has come."""
        now = self.clock.seconds
        due = [one for one in self._in_flight if one[0] <= now]
        self._in_flight = [one for one in self._in_flight if one[0] > now]
        for _, effect in due:
            effect()

    def holds(self, request: LaunchRequest) -> bool:
        """Whether the request's token has its machine in that zone."""
        return (request.token, request.place.zone) in self.by_key

    def make(self, request: LaunchRequest) -> Thing:
        """The token's machine in the zone: made now, or whatever became of it."""
        key = (request.token, request.place.zone)
        if key not in self.by_key:
            self._ensure_firewall(request.place, request.tags)
            self.by_key[key] = [self._machine(request)]
        return self.by_key[key][0]

    def terminate(self, machine_id: str) -> None:
        """Hear it, or do not."""
        thing, now = self.things.get(machine_id), self.clock.seconds
        if thing is None or now < thing.shown_at:
            self.marks["terminate: not found"] += 1
            return
        if now >= thing.gone_at() or thing.terminated_at <= now:
            return
        if thing.deaf > 0:
            self.marks["terminate: deaf"] += 1
            thing.deaf -= 1
            return
        if self._is_needed(thing):
            raise ProviderUnavailableError(f"{machine_id} is in use", code="DependencyViolation")
        thing.terminated_at = now

    def inspect(self, machine_id: str) -> Machine:
        """As far as it is known."""
        thing, now = self.things.get(machine_id), self.clock.seconds
        if thing is None or now < thing.shown_at or now > thing.gone_at() + REMEMBERED_S:
            return Machine(machine_id, "", MachineState.TERMINATED)
        state, ended = thing.state(now)
        if (
            state is MachineState.TERMINATED
            and now < thing.gone_at() + self.script.nature.shows_gone_s
        ):
            state = MachineState.STOPPING
        return self._told(thing, state, ended)

    def inventory(self) -> list[Machine]:
        """What is listed."""
        now, lag_s = self.clock.seconds, self.script.nature.lists_gone_s
        listed = []
        for thing in self.things.values():
            if not thing.listed_at <= now < thing.gone_at() + lag_s:
                continue
            state, ended = thing.state(now)
            if state is MachineState.TERMINATED:
                self.marks["inventory: gone, and listed"] += 1
                state, ended = MachineState.READY, ""
            listed.append(self._told(thing, state, ended))
        return listed

    def _told(self, thing: Thing, state: MachineState, ended: str) -> Machine:
        kind = thing.kind
        if kind == "machine" and thing.lingers and thing.granted_at > self.clock.seconds:
            kind = "queued-resource"
        return Machine(
            id=thing.id,
            token=thing.token,
            state=state,
            endpoint=FakeEndpoint(thing.id) if state is MachineState.READY else None,
            detail=f"it is {state}",
            ended=ended,
            kind=kind,
            tags=thing.tags,
            facts={"instance_id": thing.id, "zone": thing.place.zone},
        )

    def _is_needed(self, thing: Thing) -> bool:
        now = self.clock.seconds
        if thing.tags.get("seatrial-shared"):
            region = thing.place.region
            there = (m for m in self.machines if m.place.region == region)
            return any(now < machine.gone_at() for machine in there)
        return (
            thing.kind == "disk" and thing.hangs_on is not None and now < thing.hangs_on.gone_at()
        )

    def _machine(self, request: LaunchRequest) -> Thing:
        nature, now, place = self.script.nature, self.clock.seconds, request.place
        number = len(self.machines)
        fates = self.script.fates
        fate, after_s = fates[number] if number < len(fates) else (Fate.LIVES, 0)
        is_plain = nature.flavour is Flavour.PLAIN
        decided = now + (0 if is_plain else nature.grants_in_s)
        thing = Thing(
            id=self._name(place, number, request.token),
            kind="machine",
            place=place,
            tags=dict(request.tags),
            made_at=now,
            listed_at=now + nature.lists_after_s,
            shown_at=now + nature.shows_after_s,
            granted_at=decided,
            ready_at=decided + nature.boots_in_s,
            is_plain=is_plain,
            lingers=nature.flavour is Flavour.QUEUED,
            ends_in_s=nature.ends_in_s,
            deaf=nature.deaf,
        )
        self._decide(thing, fate, after_s)
        self.marks[f"fate: {fate}"] += 1
        self.things[thing.id] = thing
        self._hang(thing, f"{place.region}/vol-{number}", "disk", stays=nature.leaves_disks)
        if nature.lists_requests:
            self._hang(thing, f"{place.region}/sir-{number}", "spot-request", stays=False)
        return thing

    def _name(self, place: Place, number: int, token: str) -> str:
        match self.script.nature.flavour:
            case Flavour.PLAIN:
                return f"{place.region}/i-{number}"
            case Flavour.REQUESTED:
                return f"{place.zone}/instances/{token}"
        return f"{place.zone}/queuedResources/{token}"

    def _decide(self, thing: Thing, fate: Fate, after_s: int) -> None:
        match fate:
            case Fate.REFUSED | Fate.OVER_QUOTA:
                why = "capacity" if fate is Fate.REFUSED else "quota"
                thing.ends_at, thing.why = thing.granted_at, why
                if self.script.nature.flavour is Flavour.PLAIN:
                    thing.ends_at += after_s / 2
                thing.granted_at = thing.ready_at = NEVER
            case Fate.STILLBORN:
                thing.ends_at, thing.why = thing.granted_at + after_s / 2, "failed"
                thing.ready_at = NEVER
            case Fate.PREEMPTED:
                thing.ends_at, thing.why = thing.granted_at + after_s, "preempted"
        expires = float(thing.tags["seatrial-expires-at"]) - BEGIN.timestamp()
        if self.script.nature.has_timer and expires < thing.ends_at:
            thing.ends_at, thing.why = max(expires, thing.made_at), "deadline"

    def _hang(self, on: Thing, thing_id: str, kind: str, *, stays: bool) -> None:
        listed = on.made_at if kind == "spot-request" else on.listed_at
        self.things[thing_id] = Thing(
            id=thing_id,
            kind=kind,
            place=on.place,
            tags=on.tags,
            made_at=on.made_at,
            listed_at=listed,
            shown_at=listed,
            hangs_on=on,
            stays=stays,
        )

    def _ensure_firewall(self, place: Place, tags: Mapping[str, str]) -> None:
        thing_id, now = f"{place.region}/sg-1", self.clock.seconds
        known = self.things.get(thing_id)
        if known is not None and now < known.gone_at():
            return
        kept = {k: v for k, v in tags.items() if k in ("seatrial-project", "seatrial-controller")}
        self.things[thing_id] = Thing(
            id=thing_id,
            kind="firewall",
            place=place,
            tags=kept | {"seatrial-shared": place.region},
            made_at=now,
            listed_at=now,
            shown_at=now,
        )
