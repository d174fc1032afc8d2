"""The wheelhouse with the real pip, from a folder of wheels instead of an index."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import textwrap
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.files.pip import guarded
from orchestrator.adapters.files.target_python import choose
from orchestrator.adapters.files.wheels import Wheelhouse
from orchestrator.application.ports.wheels import Resolution, WheelsError, WheelSizes
from orchestrator.domain.launch_plan import INDEX_ADVICE
from orchestrator.domain.manifest import Environment, Manifest, PythonChoice
from orchestrator.domain.matrix import Baseline, Subject
from orchestrator.domain.reuse_inputs import Interpreter
from tests.integration.test_git_subjects import listener
from tests.integration.wheel_making import wheel_bytes

NONE = Subject(name="payload", version="1")


class Frozen:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "links"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def add(links: Path, name: str, version: str, *requires: str, tag: str = "py3-none-any") -> None:
    (links / f"{name}-{version}-{tag}.whl").write_bytes(
        wheel_bytes(name, version, *requires, tag=tag)
    )


@pytest.fixture
def clock() -> Frozen:
    return Frozen()


@pytest.fixture
def house(tmp_path: Path, clock: Frozen) -> Wheelhouse:
    return Wheelhouse(tmp_path / "wheels", clock=clock)


def target(**changes: Any) -> Interpreter:
    values = {"path": "/usr/bin/python3", "version": "3.10.12", "implementation": "cpython"}
    values |= {"machine": "x86_64", "libc": ("glibc", "2.31"), "packages": {}, "pip": "22"}
    return Interpreter(**{**values, **changes})


def members(house: Wheelhouse, resolution: Resolution) -> list[str]:
    assert resolution.wheels is not None
    data = b"".join(house.open(resolution.wheels))
    assert hashlib.sha256(data).hexdigest() == resolution.wheels
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return archive.getnames()


def test_what_is_met_needs_no_wheelhouse(house: Wheelhouse) -> None:
    has = target(packages={"torch": "2.13.0+cpu", "pytest": "9.0"})
    asked = Environment(pip=("pytest>=8", "torch>=2.7", 'tomli; python_version < "3.10"'))
    assert house.resolve(has, asked, subject=NONE) == Resolution((), ())


def test_what_is_missing_is_fetched_with_all_it_needs(house: Wheelhouse, links: Path) -> None:
    old_only = 'only_old; python_version < "3.11"'
    add(links, "top", "1", "middle>=2", "torch>=2.0", old_only, 'never; sys_platform == "win32"')
    add(links, "middle", "1")
    add(links, "middle", "2", "bottom")
    add(links, "bottom", "3")
    add(links, "only_old", "1")
    has = target(packages={"torch": "2.7.0+cu128", "numpy": "1.26", "odd": "no-version"})
    resolution = house.resolve(has, Environment(pip=("top", "numpy")), subject=NONE)
    assert resolution.requirements == ("top",)
    assert resolution.constraints == ("numpy==1.26", "torch==2.7.0+cu128")
    assert resolution.packages == {"bottom": "3", "middle": "2", "only-old": "1", "top": "1"}
    assert members(house, resolution) == [
        "bottom-3-py3-none-any.whl",
        "middle-2-py3-none-any.whl",
        "only_old-1-py3-none-any.whl",
        "top-1-py3-none-any.whl",
    ]
    newer = house.resolve(
        target(version="3.12.1", packages=has.packages), Environment(pip=("top",)), subject=NONE
    )
    assert "only-old" not in newer.packages


def test_wheels_are_chosen_for_the_machine(house: Wheelhouse, links: Path) -> None:
    add(links, "native", "1", tag="cp310-cp310-manylinux_2_17_x86_64")
    add(links, "native", "2", tag="cp310-cp310-manylinux_2_34_x86_64")
    add(links, "native", "3", tag="cp310-cp310-manylinux_2_17_aarch64")
    add(links, "native", "4", tag="cp39-abi3-manylinux_2_38_x86_64")

    def version(**changes: Any) -> str:
        asked = Environment(pip=("native",))
        return house.resolve(target(**changes), asked, subject=NONE).packages["native"]

    assert version() == "1"
    assert version(libc=("glibc", "2.35")) == "2"
    assert version(libc=("glibc", "2.39")) == "4"
    assert version(machine="aarch64") == "3"


@pytest.mark.parametrize(
    "address",
    [
        "git+https://git.example/evil",
        "https://files.example/evil-1.0.tar.gz",
        "http://files.example/evil-1.0-py3-none-any.whl",
        "file:///etc/evil-1.0-py3-none-any.whl",
    ],
)
def test_what_a_wheel_needs_is_a_wheel_of_an_index_or_at_a_public_address(
    house: Wheelhouse, links: Path, address: str
) -> None:
    """pip would run the code of anything else, and open files of the controller's."""
    add(links, "alpha", "1.0", f"evil @ {address}")
    with pytest.raises(WheelsError, match=r"alpha 1\.0 needs what is not fetched: .*evil @"):
        house.resolve(target(), Environment(pip=("alpha",)), subject=NONE)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[fd00::1]"])
def test_where_others_can_ask_a_payload_points_pip_at_public_servers_alone(
    tmp_path: Path, links: Path, clock: Frozen, host: str
) -> None:
    house = Wheelhouse(tmp_path / "guarded", clock=clock, outward=guarded)
    with listener() as (port, heard):
        url = f"https://{host}:{port}/links"
        environment = Environment(pip=("alpha",), find_links=(url,))
        with pytest.raises(WheelsError, match=r"is not asked: .*(address|a cloud)"):
            house.resolve(target(), environment, subject=NONE)
    assert heard == []


def test_pip_asks_no_server_that_was_not_looked_at(
    tmp_path: Path, links: Path, clock: Frozen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is public when it is looked at, and the controller's own a moment later."""
    monkeypatch.setenv("PIP_RETRIES", "0")
    answers = iter([["93.184.216.34"]])
    turning = partial(guarded, resolve=lambda host, port: next(answers, ["127.0.0.1"]))
    house = Wheelhouse(tmp_path / "guarded", clock=clock, outward=turning)
    with listener() as (port, heard):
        url = f"https://localhost:{port}/alpha-1.0-py3-none-any.whl"
        with pytest.raises(WheelsError, match="no wheels of alpha @"):
            house.resolve(target(), Environment(pip=(f"alpha @ {url}",)), subject=NONE)
    assert heard == []


def test_extras_are_followed(house: Wheelhouse, links: Path) -> None:
    add(links, "top", "1", 'fast_part; extra == "fast"', 'slow_part; extra == "slow"')
    add(links, "user", "1", "top[slow]")
    add(links, "fast_part", "1")
    add(links, "slow_part", "1")
    resolution = house.resolve(target(), Environment(pip=("top[fast]",)), subject=NONE)
    assert sorted(resolution.packages) == ["fast-part", "top"]
    both = house.resolve(target(), Environment(pip=("top[fast]", "user")), subject=NONE)
    assert sorted(both.packages) == ["fast-part", "slow-part", "top", "user"]


def test_a_later_need_narrows_what_was_fetched(house: Wheelhouse, links: Path) -> None:
    add(links, "a", "1", "b", "c")
    add(links, "b", "1")
    add(links, "b", "2")
    add(links, "c", "1", "b<2")
    resolution = house.resolve(target(), Environment(pip=("a",)), subject=NONE)
    assert resolution.packages == {"a": "1", "b": "1", "c": "1"}


def test_the_images_torch_stays_unless_it_is_named(house: Wheelhouse, links: Path) -> None:
    add(links, "top", "1", "torch>=2.9")
    add(links, "torch", "2.9")
    add(links, "pluggy", "2")
    add(links, "other", "1", "pluggy>=2")
    has = target(packages={"torch": "2.7.0+cu128", "pluggy": "1"})
    with pytest.raises(WheelsError) as caught:
        house.resolve(has, Environment(pip=("top",)), subject=NONE)
    assert "top 1 needs torch>=2.9, but /usr/bin/python3 has torch 2.7.0+cu128, which is kept" in (
        str(caught.value)
    )
    named = house.resolve(has, Environment(pip=("top", "torch>=2.9")), subject=NONE)
    assert named.packages == {"top": "1", "torch": "2.9"}
    assert named.constraints == ("pluggy==1",)
    replaced = house.resolve(has, Environment(pip=("other",)), subject=NONE)
    assert replaced.packages == {"other": "1", "pluggy": "2"}


def test_an_interpreter_without_pip_is_given_one(house: Wheelhouse, links: Path) -> None:
    add(links, "top", "1")
    add(links, "pip", "99")
    resolution = house.resolve(target(pip=None), Environment(pip=("top",)), subject=NONE)
    assert (resolution.requirements, sorted(resolution.packages)) == (("top",), ["pip", "top"])


def test_one_answer_a_day(house: Wheelhouse, links: Path, clock: Frozen) -> None:
    add(links, "top", "1")
    asked = Environment(pip=("top",))
    first = house.resolve(target(), asked, subject=NONE)
    add(links, "top", "2")
    assert house.resolve(target(path="/elsewhere"), asked, subject=NONE) == first
    clock.time += timedelta(days=1)
    assert house.resolve(target(), asked, subject=NONE).packages == {"top": "2"}
    assert members(house, first) == ["top-1-py3-none-any.whl"]


def test_equal_wheels_have_equal_archives(tmp_path: Path, links: Path, clock: Frozen) -> None:
    add(links, "top", "1", "part")
    add(links, "part", "1")
    digests = {
        Wheelhouse(tmp_path / name, clock=clock)
        .resolve(target(), Environment(pip=("top",)), subject=NONE)
        .wheels
        for name in ("a", "b")
    }
    assert len(digests) == 1


def test_what_cannot_be_found_says_what_to_do(house: Wheelhouse, links: Path) -> None:
    add(links, "top", "1")
    asked = ("top>=2",)
    with pytest.raises(WheelsError) as caught:
        house.resolve(target(), Environment(pip=asked), subject=NONE)
    message = str(caught.value)
    assert message.startswith("no wheels of top>=2 for Python 3.10.12 on x86_64 with glibc 2.31:")
    assert "No matching distribution found for top>=2" in message
    assert message.endswith(INDEX_ADVICE)
    own = house.resolve(target(), Environment(pip=asked, index=True), subject=NONE)
    assert (own.requirements, own.wheels) == (asked, None)
    assert own.note.startswith("the machine installs from its own index, because here no wheels")


def test_only_the_package_without_a_wheel_is_named(house: Wheelhouse, links: Path) -> None:
    for name in ("aa", "bb", "dd"):
        add(links, name, "1")
    with pytest.raises(WheelsError, match=r"^no wheels of cc==9 for Python"):
        house.resolve(target(), Environment(pip=("aa", "bb", "cc==9", "dd")), subject=NONE)


def test_a_wheelhouse_that_was_removed_says_so(house: Wheelhouse) -> None:
    with pytest.raises(WheelsError, match="not kept here any more"):
        house.open("0" * 64)


SUBJECT = Subject(name="My.Lib", version="1.0", wheel="dist/*.whl")


def opener(data: bytes) -> Any:
    return lambda: [data[:100], data[100:]]


def test_an_uploaded_subject_is_shipped_with_what_it_needs(house: Wheelhouse, links: Path) -> None:
    add(links, "part", "1")
    data = wheel_bytes("my_lib", "1.0.0", "part", "torch")
    has = target(packages={"torch": "2.7", "my-lib": "0.9"})
    resolution = house.resolve(has, Environment(), subject=SUBJECT, wheel=opener(data))
    assert members(house, resolution) == [
        "my_lib-1.0.0-py3-none-any.whl",
        "part-1-py3-none-any.whl",
    ]
    assert resolution.constraints == ("torch==2.7",)
    assert resolution.subject == {
        "distribution": "My.Lib",
        "version": "1.0",
        "requirement": "My.Lib==1.0",
    }


def test_a_baseline_is_of_the_version_that_its_wheel_says(house: Wheelhouse, links: Path) -> None:
    add(links, "my_lib", "0.9")
    baseline = Baseline(wheel="old/*.whl").as_subject("My.Lib")
    data = wheel_bytes("my_lib", "0.8")
    built = house.resolve(target(), Environment(), subject=baseline, wheel=opener(data))
    assert built.subject is not None
    assert (built.subject["version"], built.subject["requirement"]) == ("0.8", "My.Lib==0.8")
    pinned = Baseline(package="my-lib==0.9").as_subject("My.Lib")
    found = house.resolve(target(), Environment(), subject=pinned)
    assert found.subject is not None
    assert (found.subject["version"], found.subject["requirement"]) == ("0.9", "my-lib==0.9")
    other = wheel_bytes("other", "1")
    with pytest.raises(WheelsError, match="the wheel is other 1, but"):
        house.resolve(target(), Environment(), subject=baseline, wheel=opener(other))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            wheel_bytes("my_lib", "1.1"),
            "the wheel is my_lib 1.1, but the matrix's subject is My.Lib",
        ),
        (wheel_bytes("other", "1.0"), "the wheel is other 1.0, but"),
        (wheel_bytes("my_lib", "1.0", tag="cp39-cp39-win_amd64"), "cannot be installed for Python"),
        (wheel_bytes("my_lib", "1.0", "torch>=9"), "my_lib 1.0 needs torch>=9, but"),
        (b"PK nonsense", "subject.whl is no wheel"),
        (wheel_bytes("my_lib", "one"), "has unusable metadata"),
    ],
)
def test_a_subject_that_does_not_fit_is_refused(
    house: Wheelhouse, links: Path, data: bytes, words: str
) -> None:
    has = target(packages={"torch": "2.7"})
    with pytest.raises(WheelsError, match=words):
        house.resolve(has, Environment(), subject=SUBJECT, wheel=opener(data))


@pytest.mark.parametrize("place", ["pip", "python.requires"])
def test_what_the_payload_requires_holds_whatever_the_subject_needs(
    house: Wheelhouse, links: Path, place: str
) -> None:
    """The interpreter meets it, so that pip has nothing to do for it but to keep it."""
    for version in ("7.4", "8.1", "9.0"):
        add(links, "judge", version)
    needs = {"requires": ("judge>=8",)} if place == "python.requires" else {}
    asked = Environment(pip=() if needs else ("judge>=8",))

    def resolved(need: str) -> Resolution:
        data = wheel_bytes("my_lib", "1.0", need)
        has = target(packages={"judge": "8.0"})
        house.sizes(has, asked, subject=SUBJECT, wheel=opener(data), **needs)
        return house.resolve(has, asked, subject=SUBJECT, wheel=opener(data), **needs)

    newer = resolved("judge>8")
    assert newer.packages["judge"] == "9.0"
    assert newer.constraints == ("judge>=8",)
    assert resolved("judge!=8.0,<9").packages["judge"] == "8.1"
    with pytest.raises(WheelsError) as caught:
        resolved("judge<8")
    assert "my_lib 1.0 needs judge<8, and the payload needs judge>=8" in str(caught.value)
    has = target(packages={"judge": "8.0"})
    data = wheel_bytes("my_lib", "1.0", "judge<8")
    with pytest.raises(WheelsError, match="No matching distribution found for judge") as caught:
        house.resolve(has, asked, subject=SUBJECT, wheel=opener(data), **needs)
    assert "my_lib 1.0 needs judge<8, and the payload needs judge>=8" in str(caught.value)


def test_a_subject_that_was_not_uploaded_is_refused(house: Wheelhouse) -> None:
    with pytest.raises(WheelsError, match="was not uploaded"):
        house.resolve(target(), Environment(), subject=SUBJECT)


def test_a_package_is_shipped_though_the_image_has_it(house: Wheelhouse, links: Path) -> None:
    add(links, "lib", "1.0")
    subject = Subject(name="lib", version="1.0", package="lib==1.0")
    has = target(packages={"lib": "1.0", "torch": "2.7"})
    resolution = house.resolve(has, Environment(), subject=subject)
    assert members(house, resolution) == ["lib-1.0-py3-none-any.whl"]
    assert resolution.constraints == ("torch==2.7",)
    assert resolution.subject is not None
    assert resolution.subject["requirement"] == "lib==1.0"


def probe_here() -> dict[str, Any]:
    script = textwrap.dedent(
        """
        import importlib.metadata as m, json, platform, sys
        packages = {d.metadata["Name"]: d.version for d in m.distributions()}
        one = {"path": sys.executable, "version": platform.python_version(), "error": None,
               "implementation": sys.implementation.name, "packages": packages, "pip": "1",
               "has_venv": True}
        print(json.dumps({"machine": platform.machine(), "libc": list(platform.libc_ver()),
                          "interpreters": [one]}))
        """
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_was_resolved_installs_without_an_index(
    house: Wheelhouse, links: Path, tmp_path: Path
) -> None:
    add(links, "seatrial_top", "1", "seatrial_part", "pytest>=8")
    add(links, "seatrial_part", "1")
    chosen = choose(probe_here(), Manifest(name="p", version="1"), "image").interpreter
    assert chosen is not None
    resolution = house.resolve(chosen, Environment(pip=("seatrial_top",)), subject=NONE)
    assert resolution.wheels is not None
    unpacked = tmp_path / "unpacked"
    with tarfile.open(fileobj=io.BytesIO(b"".join(house.open(resolution.wheels)))) as archive:
        archive.extractall(unpacked)
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("\n".join(resolution.constraints))
    offline = ("--no-index", "--find-links", str(unpacked), "-c", str(constraints))
    command = (sys.executable, "-m", "pip", "install", "--isolated", "--dry-run", *offline)
    done = subprocess.run(
        [*command, *resolution.requirements], check=False, capture_output=True, text=True
    )
    said = done.stdout.replace("_", "-")
    assert "Would install seatrial-part-1 seatrial-top-1" in said, done.stderr


def test_a_build_for_cpus_goes_before_the_one_that_brings_cuda(house: Wheelhouse, links: Path):
    """As the environment for TPUs has it: both are found, and the local version is the higher."""
    add(links, "torch", "2.9.1", "nvidia-cublas-cu12")
    add(links, "torch", "2.9.1+cpu")
    add(links, "torch_xla", "2.9.0", "torch==2.9.*")
    wanted = Environment(pip=("torch~=2.9.0", "torch_xla~=2.9.0"))
    resolution = house.resolve(target(), wanted, subject=NONE)
    assert resolution.packages == {"torch": "2.9.1+cpu", "torch-xla": "2.9.0"}


def test_more_than_can_be_sent_is_refused_with_what_is_largest(
    house: Wheelhouse, links: Path
) -> None:
    add(links, "torch", "2.9.1", "nvidia_cublas_cu12")
    add(links, "nvidia_cublas_cu12", "12.8")
    with pytest.raises(
        WheelsError, match=r"torch \d+ B.*limits\.max_shipped_gb of 1\.0 kB.*a build without CUDA"
    ):
        house.resolve(target(), Environment(pip=("torch",)), subject=NONE, limit_bytes=1000)
    wanted = Environment(pip=("torch",), index=True)
    own = house.resolve(target(), wanted, subject=NONE, limit_bytes=1000)
    assert (own.wheels, "the machine installs from its own index" in own.note) == (None, True)


def test_a_wheelhouse_that_was_made_under_a_higher_limit_is_refused_too(
    house: Wheelhouse, links: Path
) -> None:
    add(links, "top", "1")
    assert house.resolve(target(), Environment(pip=("top",)), subject=NONE).wheels is not None
    with pytest.raises(WheelsError, match=r"limits\.max_shipped_gb of 100 B"):
        house.resolve(target(), Environment(pip=("top",)), subject=NONE, limit_bytes=100)


def test_sizes_are_those_of_what_would_be_fetched(house: Wheelhouse, links: Path) -> None:
    add(links, "top", "1", "middle>=2", "torch>=2.0", 'old; python_version < "3.11"')
    add(links, "middle", "1")
    add(links, "middle", "2", tag="cp310-cp310-manylinux_2_17_x86_64")
    add(links, "middle", "3", tag="cp310-cp310-manylinux_2_17_aarch64")
    add(links, "old", "1")
    has = target(packages={"torch": "2.7.0"})
    asked = Environment(pip=("top",))
    found = house.sizes(has, asked, subject=NONE)
    fetched = house.resolve(has, asked, subject=NONE)
    assert found.packages == fetched.packages == {"middle": "2", "old": "1", "top": "1"}
    names = members(house, fetched)
    assert found.size_bytes == sum((links / name).stat().st_size for name in names)
    assert (found.unknown, house.sizes(has, asked, subject=NONE)) == ({}, found)
    met = target(packages={"top": "1"})
    assert house.sizes(met, asked, subject=NONE) == WheelSizes({}, 0, {})


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("absent", r"no wheel of absent for .*: no index knows its name.*`\[env.image\]` in place"),
        ("native", "no wheel of native for Python 3.10.12 .*: all of its wheels are for others"),
        ("plain>=2", "no wheel of plain>=2 for .*: the newest that there are for it are 1.5, 1.0"),
    ],
)
def test_what_does_not_resolve_is_told_before_anything_is_fetched(
    house: Wheelhouse, links: Path, wanted: str, why: str
) -> None:
    add(links, "native", "1", tag="cp313-cp313-manylinux_2_17_x86_64")
    add(links, "plain", "1.0")
    add(links, "plain", "1.5")
    with pytest.raises(WheelsError, match=why):
        house.sizes(target(), Environment(pip=(wanted,)), subject=NONE)


def test_a_machine_that_nobody_has_seen_is_assumed_by_what_payload_and_image_say(
    house: Wheelhouse,
) -> None:
    requires = PythonChoice(requires=("torch>=2.7", "numpy", "added~=1.2"))
    environment = Environment(python=("/opt/x/bin/python3.12",), pip=("added",))
    manifest = Manifest(name="x", version="1", python=requires, env={"own": environment})
    found = house.assume(manifest, "own", torch="2.9")
    assert (found.version, found.packages) == ("3.12.0", {"torch": "2.9", "numpy": "0"})
    bare = house.assume(manifest, "image", torch="")
    assert bare.packages == {"torch": "2.7", "numpy": "0", "added": "1.2"}
