"""How one controller sees the clumsy cloud: its provider, with a line that may break."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from orchestrator.domain.machine import (
    LaunchRequest,
    Machine,
    Place,
    ProviderError,
    ProviderUnavailableError,
)
from orchestrator.domain.matrix import Platform
from tests.integration.faulty_cloud import ClumsyCloud
from tests.integration.faulty_script import (
    BEFORE_THE_TOKEN,
    REFUSALS,
    WITH_EFFECT,
    Answer,
    Verb,
)
from tests.integration.memory_engine import SimulatedCrashError


def places() -> Iterator[Place]:
    """Everywhere, the cheap market of each zone first."""
    for zone in ("east-a", "east-b", "west-a", "west-b"):
        for market, price in (("spot", "0.20"), ("on-demand", "0.50")):
            yield Place(
                f"{zone}/{market}",
                price_usd_per_hour=Decimal(price),
                disk_usd_per_hour=Decimal("0.01"),
                minimum_s=60,
                region=zone.partition("-")[0],
                zone=zone,
                market=market,
                instance_type="clumsy",
            )


PLACES = tuple(places())
Trip = Callable[[str], bool]
"""Whether the process dies at the point of this name."""


@dataclass(slots=True, kw_only=True)
class Line:
    """One controller's provider: a line to the cloud, which may go dead with the controller."""

    cloud: ClumsyCloud
    trips: Trip
    passes: Callable[[float], None]
    """Called with the seconds that a call takes."""
    told: Callable[[Machine], None] = lambda machine: None
    """Called with what an inspect says."""
    who: str = "flow"

    def is_configured(self) -> bool:
        """It always is."""
        return True

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """Everywhere."""
        self._begin(Verb.PLACES, "")
        return PLACES

    def launch(self, request: LaunchRequest) -> Machine:
        """One call: it may have its effect and no answer, or die on the way."""
        wait_s = self._begin(Verb.LAUNCH, request.token, request.place.name)
        answer = self.cloud.next_answer()
        if self.cloud.holds(request) and answer not in WITH_EFFECT | BEFORE_THE_TOKEN:
            answer = Answer.OK
        self.cloud.marks[f"launch: {answer}"] += 1
        if answer not in WITH_EFFECT:
            self.passes(wait_s)
            self._survive("launch, refused")
            raise self._error(answer, request.place)
        if self.trips("launch, on its way"):
            self.cloud.send(lambda: self.cloud.make(request), after_s=wait_s)
            raise SimulatedCrashError("launch, on its way")
        self.passes(wait_s / 2)
        thing = self.cloud.make(request)
        self.passes(wait_s - wait_s / 2)
        self._survive("launch, made")
        if answer is Answer.BROKEN:
            raise RuntimeError("the line broke in a way that nobody thought of")
        if answer is Answer.LOST:
            raise self._error(answer, request.place)
        thing.shown_to.add(self.who)
        return self.cloud._told(thing, *thing.state(self.cloud.clock.seconds))

    def inspect(self, machine_id: str) -> Machine:
        """One look."""
        wait_s = self._begin(Verb.INSPECT, machine_id)
        self.passes(wait_s / 2)
        machine = self.cloud.inspect(machine_id)
        self.cloud.calls.append((self.who, "answer", machine.state))
        self.passes(wait_s - wait_s / 2)
        self._survive("inspect, answered")
        if machine.token:
            self.cloud.things[machine_id].shown_to.add(self.who)
        self.told(machine)
        return machine

    def terminate(self, machine_id: str) -> None:
        """One call."""
        wait_s = self._begin(Verb.TERMINATE, machine_id)
        if self.trips("terminate, on its way"):
            self.cloud.send(lambda: self._unheard(machine_id), after_s=wait_s)
            raise SimulatedCrashError("terminate, on its way")
        self.passes(wait_s / 2)
        self.cloud.terminate(machine_id)
        self.passes(wait_s - wait_s / 2)
        self._survive("terminate, accepted")

    def inventory(self) -> list[Machine]:
        """One listing."""
        wait_s = self._begin(Verb.INVENTORY, "")
        self.passes(wait_s / 2)
        found = self.cloud.inventory()
        self.passes(wait_s - wait_s / 2)
        self._survive("inventory, answered")
        for machine in found:
            self.cloud.things[machine.id].shown_to.add(self.who)
        return found

    def _begin(self, verb: Verb, *what: str) -> float:
        self.cloud.catch_up()
        self.cloud.calls.append((self.who, verb, *what))
        self._survive(f"{verb}, before")
        if self.cloud.is_out(verb):
            self.cloud.marks[f"out: {verb}"] += 1
            raise ProviderUnavailableError(f"{verb} is out of order", code="503")
        return self.cloud.next_delay_s() if self.who == "flow" else 0.0

    def _survive(self, point: str) -> None:
        if self.trips(point):
            raise SimulatedCrashError(point)

    def _unheard(self, machine_id: str) -> None:
        try:
            self.cloud.terminate(machine_id)
        except ProviderError:
            self.cloud.marks["terminate: refused, and nobody to hear it"] += 1

    def _error(self, answer: Answer, place: Place) -> ProviderError:
        error, extent = REFUSALS[answer]
        return error(f"{place.name}: {answer}", code=answer.name, extent=extent)
