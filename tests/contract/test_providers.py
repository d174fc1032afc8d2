"""One set of questions to every provider, and what each has of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    Credentialed,
    CredentialsError,
    LaunchRequest,
    LocalEndpoint,
    Machine,
    MachineState,
    NotOfferedError,
    Offers,
    Place,
    Provider,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
    SshEndpoint,
)
from runners import registry
from runners.fake import FakeCloud, FakeProvider, LaunchFault, MemoryHostStore
from runners.provider_context import ProviderContext
from runners.static import StaticProvider
from tests.contract import provider_cases
from tests.contract.provider_cases import (
    CLOUDS,
    HOST,
    HOST_KEY,
    ONE_TOKEN_EVERYWHERE,
    PLATFORMS,
    RENTED,
    Case,
    acme_module,
    ask,
    machines_of,
    until,
)
from tests.e2e.home import eventually
from tests.platforms import as_platform


@pytest.fixture(params=sorted(PLATFORMS))
def name(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


@pytest.fixture
def case(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    with provider_cases.case(name, monkeypatch) as case:
        yield case


@pytest.fixture
def provider(case: Case) -> Provider:
    return case.provider


def test_places_are_known_before_anything_is_launched(provider: Provider, name: str) -> None:
    assert isinstance(provider, Offers)
    places = provider.places(as_platform(PLATFORMS[name]))
    assert places
    assert len({place.name for place in places}) == len(places)
    assert all(isinstance(place.price_usd_per_hour, Decimal) for place in places)
    assert list(provider.inventory()) == []
    for place in places if name in RENTED else ():
        assert place.usd_per_hour is not None
        assert place.usd_per_hour > 0
        assert place.zone.startswith(place.region)
        assert place.market in ("spot", "on-demand")
    if name in CLOUDS:
        assert isinstance(provider, Credentialed)
        assert provider.is_configured()


def test_a_token_is_one_machine_and_another_token_another(provider: Provider, name: str) -> None:
    first = provider.launch(ask(provider, name))
    again = provider.launch(ask(provider, name))
    assert (first.id, first.token) == (again.id, "t-1")
    assert machines_of(provider) == [first.id]
    if name in ONE_TOKEN_EVERYWHERE:
        assert provider.launch(ask(provider, name, place=1)).id == first.id
    other = provider.launch(ask(provider, name, token="t-2", place=1))
    assert set(machines_of(provider)) == {first.id, other.id}
    assert first.id != other.id


@pytest.mark.parametrize("name", CLOUDS)
def test_a_lost_answer_leaves_one_machine_that_its_token_finds(case: Case, name: str) -> None:
    request = ask(case.provider, name)
    case.lose_answer()
    with pytest.raises(ProviderUnavailableError):
        case.provider.launch(request)
    (found,) = [one for one in case.provider.inventory() if one.kind == "machine"]
    assert found.token == "t-1"
    assert case.provider.launch(request).id == found.id
    assert machines_of(case.provider) == [found.id]


@pytest.mark.parametrize("name", CLOUDS)
def test_another_controller_finds_and_ends_what_one_has_left(case: Case, name: str) -> None:
    request = ask(case.provider, name)
    launched = case.provider.launch(request)
    other = case.again()
    (found,) = [one for one in other.inventory() if one.kind == "machine"]
    assert (found.id, found.token) == (launched.id, "t-1")
    assert launched.simulated
    assert found.simulated
    assert dict(request.tags).items() <= dict(found.tags).items()
    other.terminate(found.id)
    until(other, found, MachineState.TERMINATED)
    assert machines_of(case.provider) == []
    eventually(lambda: not case.left())


def test_a_machine_is_reached_given_back_and_had_again(provider: Provider, name: str) -> None:
    launched = provider.launch(ask(provider, name))
    machine = until(provider, launched, MachineState.READY)
    assert machine.endpoint is not None
    assert (machine.id, machine.token) == (launched.id, "t-1")
    for _ in range(2):
        provider.terminate(machine.id)
    until(provider, machine, MachineState.TERMINATED)
    provider.terminate(machine.id)
    assert provider.inspect(machine.id).state is MachineState.TERMINATED
    assert machines_of(provider) == []
    again = provider.launch(ask(provider, name, token="t-2"))
    assert again.id != machine.id
    assert machines_of(provider) == [again.id]


def test_an_unknown_machine_is_gone_and_terminating_it_is_no_error(provider: Provider) -> None:
    provider.terminate("nobody-knows-it")
    assert provider.inspect("nobody-knows-it").state is MachineState.TERMINATED


def test_traits_name_the_provider_and_its_keys(name: str) -> None:
    traits = acme_module().TRAITS if name == "acme" else registry.traits(name)
    assert traits.name == name
    assert traits.required <= traits.keys
    assert set(PLATFORMS[name]) <= traits.keys | {"provider"}


# what survives the controller


@pytest.mark.parametrize("name", ["local", "static"])
def test_machines_are_remembered_by_the_book_alone(name: str) -> None:
    book = MemoryHostStore()
    before = registry.load(name, ProviderContext(book=book))
    machine = before.launch(ask(before, name))
    after = registry.load(name, ProviderContext(book=book))
    assert after.inspect(machine.id) == machine
    assert after.launch(ask(after, name)) == machine
    after.terminate(machine.id)
    gone = before.inspect(machine.id)
    # A machine without its token might only not be shown yet: a cell would wait a minute for it.
    assert (gone.state, gone.token) == (MachineState.TERMINATED, machine.token)


# local


def test_local_is_free_shared_and_ready_at_once() -> None:
    provider = registry.load("local", ProviderContext(book=MemoryHostStore()))
    request = ask(provider, "local")
    assert (request.place.name, request.place.exclusive) == ("local", False)
    assert request.place.price_usd_per_hour == 0
    machine = provider.launch(request)
    assert machine.state is MachineState.READY
    assert isinstance(machine.endpoint, LocalEndpoint)
    assert not registry.traits("local").rented


# static


def test_a_pool_offers_every_host_to_one_cell_at_a_time() -> None:
    provider = StaticProvider(ProviderContext(book=MemoryHostStore()))
    places = provider.places(as_platform(PLATFORMS["static"]))
    assert [place.name for place in places] == ["10.0.0.5:22", "10.0.0.6:22"]
    assert all(place.exclusive and place.price_usd_per_hour == 0 for place in places)
    machine = provider.launch(ask(provider, "static", place=1))
    assert machine.endpoint == SshEndpoint("10.0.0.6", "ubuntu", HOST_KEY, "id_ed25519", 22)


def test_a_host_that_is_handed_out_is_refused_to_another_token() -> None:
    provider = StaticProvider(ProviderContext(book=MemoryHostStore()))
    held = provider.launch(ask(provider, "static"))
    with pytest.raises(CapacityError, match=r"10\.0\.0\.5:22 is in use"):
        provider.launch(ask(provider, "static", token="t-2"))
    provider.terminate(held.id)
    assert provider.launch(ask(provider, "static", token="t-2")).state is MachineState.READY


def test_a_host_by_ipv6_has_an_unambiguous_name() -> None:
    provider = StaticProvider(ProviderContext(book=MemoryHostStore()))
    platform = {"hosts": [{**HOST, "address": "fd00::5", "port": 2222}]}
    (place,) = provider.places(as_platform(platform))
    assert place.name == "[fd00::5]:2222"
    machine = provider.launch(LaunchRequest("t", place, as_platform(platform), {}))
    assert isinstance(machine.endpoint, SshEndpoint)
    assert (machine.endpoint.address, machine.endpoint.port) == ("fd00::5", 2222)


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        (None, "hosts: list at least one"),
        ([], "hosts: list at least one"),
        ([HOST, HOST], r"hosts\.1: 10\.0\.0\.5:22 is listed twice"),
        ([{**HOST, "address": " "}], r"hosts\.0\.address: must not be empty"),
        ([{**HOST, "user": " "}], r"hosts\.0\.user: must not be empty"),
        ([{**HOST, "key_file": " "}], r"hosts\.0\.key_file: must not be empty"),
        ([{**HOST, "host_key": " "}], r"hosts\.0\.host_key: must not be empty"),
        ([{**HOST, "key_file": "../id_ed25519"}], "not a bare file name"),
        ([{**HOST, "key_file": "/etc/keys/id_ed25519"}], "not a bare file name"),
        ([{**HOST, "key_file": ".."}], "not a bare file name"),
        ([{**HOST, "host_key": "AAAA"}], "not a public host key"),
        ([{**HOST, "host_key": "ssh-ed25519 !!!"}], "not a public host key"),
        ([{**HOST, "host_key": "ssh-rsa " + HOST_KEY.split()[1]}], "not a public host key"),
        ([{**HOST, "port": 0}], "no port number"),
        ([{**HOST, "port": 65536}], "no port number"),
        ([{**HOST, "user": "a\nb"}], "cannot be printed"),
        ([{**HOST, "address": "10.0.0 .5"}], "must not have spaces"),
    ],
)
def test_an_impossible_pool_is_refused(hosts: object, words: str) -> None:
    provider = StaticProvider(ProviderContext(book=MemoryHostStore()))
    with pytest.raises(ConfigError, match=words):
        provider.places(as_platform({"hosts": hosts}))


def test_a_wrong_value_of_a_host_is_found_at_its_key() -> None:
    hosts = [HOST, {**HOST, "address": "10.0.0.6", "port": 0}]
    (problem,) = registry.traits("static").check(as_platform({"hosts": hosts}))
    assert problem.path == ("hosts", 1, "port")
    assert problem.message == "0 is no port number from 1 to 65535"


def test_an_image_key_that_gcp_lacks_is_found_before_a_launch() -> None:
    values = {"instance_type": "g2-standard-4", "image": {"familly": "x"}}
    (problem,) = registry.traits("gcp").check(as_platform(values))
    assert problem.path == ("image", "familly")
    assert problem.message == "gcp has no such key; did you mean 'family'?"


def test_a_host_that_the_platform_does_not_list_is_refused() -> None:
    provider = StaticProvider(ProviderContext(book=MemoryHostStore()))
    request = LaunchRequest("t", Place(name="10.9.9.9:22"), as_platform(PLATFORMS["static"]), {})
    with pytest.raises(ConfigError, match=r"10\.9\.9\.9:22 is not in the platform's hosts"):
        provider.launch(request)
    assert list(provider.inventory()) == []


# fake


@pytest.fixture
def cloud() -> FakeCloud:
    return FakeCloud()


@pytest.fixture
def rent(cloud: FakeCloud) -> Callable[..., Machine]:
    provider = FakeProvider(ProviderContext(book=MemoryHostStore()), cloud)

    def launch(token: str = "t-1", place: int = 0) -> Machine:
        return provider.launch(ask(provider, "fake", token=token, place=place))

    return launch


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (LaunchFault.CAPACITY, CapacityError),
        (LaunchFault.QUOTA, QuotaError),
        (LaunchFault.NOT_OFFERED, NotOfferedError),
        (LaunchFault.UNAVAILABLE, ProviderUnavailableError),
        (LaunchFault.CREDENTIALS, CredentialsError),
        (LaunchFault.CONFIG, ConfigError),
    ],
)
def test_a_scripted_refusal_makes_no_machine(
    cloud: FakeCloud, rent: Callable[..., Machine], fault: LaunchFault, error: type[ProviderError]
) -> None:
    cloud.fail("east", fault)
    for _ in range(2):
        with pytest.raises(error, match="east"):
            rent()
    assert (cloud.made, len(cloud.requests)) == (0, 2)
    assert rent(place=1).state is MachineState.BOOTING


def test_faults_run_out(cloud: FakeCloud, rent: Callable[..., Machine]) -> None:
    cloud.fail("east", LaunchFault.UNAVAILABLE, times=2)
    for _ in range(2):
        with pytest.raises(ProviderUnavailableError):
            rent()
    assert rent().token == "t-1"


def test_a_lost_answer_leaves_one_machine_that_the_token_finds(
    cloud: FakeCloud, rent: Callable[..., Machine]
) -> None:
    cloud.fail("east", LaunchFault.LOST_ANSWER, times=1)
    with pytest.raises(ProviderUnavailableError):
        rent()
    assert cloud.made == 1
    assert [rent().id] == [machine.id for machine in cloud.live()]
    assert cloud.made == 1


def test_booting_and_stopping_take_the_scripted_number_of_looks(
    cloud: FakeCloud, rent: Callable[..., Machine]
) -> None:
    cloud.boot_looks, cloud.stop_looks = 2, 1
    machine = rent()
    states = [cloud.inspect(machine.id).state for _ in range(3)]
    assert states == [MachineState.BOOTING, MachineState.BOOTING, MachineState.READY]
    cloud.terminate(machine.id)
    assert len(cloud.live()) == 1
    states = [cloud.inspect(machine.id).state for _ in range(2)]
    assert states == [MachineState.STOPPING, MachineState.TERMINATED]
    assert cloud.live() == ()


def test_a_preempted_machine_is_gone_with_its_computer(
    cloud: FakeCloud, rent: Callable[..., Machine]
) -> None:
    machine = rent()
    cloud.preempt(machine.id)
    seen = cloud.inspect(machine.id)
    assert (seen.state, seen.detail) == (MachineState.TERMINATED, "preempted")
    assert cloud.computer(machine.id).dead


def test_other_verbs_can_fail_too(cloud: FakeCloud, rent: Callable[..., Machine]) -> None:
    machine = rent()
    cloud.fail_verb("terminate", times=1)
    with pytest.raises(ProviderUnavailableError):
        cloud.terminate(machine.id)
    assert len(cloud.live()) == 1
    cloud.terminate(machine.id)
    assert cloud.terminates == 1


# registry


def test_an_unknown_provider_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"'loacl'.*did you mean 'local'"):
        registry.load("loacl", ProviderContext(book=MemoryHostStore()))
    with pytest.raises(ConfigError, match="did you mean 'static'"):
        registry.traits("statics")


def test_the_registry_lists_what_it_can_load() -> None:
    assert {"fake", "local", "static"} <= set(registry.names())
    assert [registry.traits(name).name for name in registry.names()] == list(registry.names())
