"""What evidence depends on: any change is seen, named, and never taken for nothing."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.manifest import Job
from orchestrator.domain.matrix import Accelerator, Host, Platform
from orchestrator.domain.reuse_inputs import (
    ReuseInputs,
    age,
    all_reusable,
    changes,
    in_words,
    platform_document,
    produced_at,
    refusal_of,
    too_old,
)

NOW = datetime(2026, 1, 20, tzinfo=UTC)
MADE = ReuseInputs(
    product="proof",
    payload="a" * 64,
    subject=f"lib 1.0 {'b' * 64}",
    environment="image",
    platform={"id": "gpu", "provider": "aws", "disk_gb": "100"},
    tool="0.1",
    instance_type="g5.xlarge",
    image="ami-1",
    devices="1 x nvidia A10G 8.6",
    driver="570.1",
    python="Python 3.11.2 on x86_64 with glibc 2.36",
    records="e" * 64,
    wheels="c" * 64,
    packages={"numpy": "2.4.5", "torch": "2.9.0"},
)
TEXTS = [f.name for f in fields(ReuseInputs) if f.type == "str"]
WORDS = st.text(min_size=1, max_size=8)
PLATFORMS = st.dictionaries(st.sampled_from(["id", "disk_gb", "image"]), WORDS)
PACKAGES = st.dictionaries(st.sampled_from(["numpy", "torch", "triton"]), WORDS)
ANY = st.builds(
    ReuseInputs,
    **dict.fromkeys(TEXTS, st.sampled_from(["", "one", "two"])),
    platform=PLATFORMS,
    packages=PACKAGES,
    simulated=st.booleans(),
)

CHANGED = [
    ("payload", "f" * 64, f"payload changed: {'a' * 12} → {'f' * 12}"),
    ("subject", f"lib 1.1 {'d' * 64}", f"subject changed: lib 1.0 {'b' * 12} → lib 1.1 {'d' * 12}"),
    ("environment", "tpu", "environment changed: image → tpu"),
    ("tool", "0.2", "seatrial changed: 0.1 → 0.2"),
    ("platform", {"id": "gpu", "provider": "aws", "disk_gb": "150"},
     "platform changed: disk_gb 100 → 150"),
    ("instance_type", "g6.xlarge", "instance type changed: g5.xlarge → g6.xlarge"),
    ("image", "ami-2", "image changed: ami-1 → ami-2"),
    ("devices", "2 x nvidia A10G 8.6",
     "devices changed: 1 x nvidia A10G 8.6 → 2 x nvidia A10G 8.6"),
    ("driver", "580.2", "driver changed: 570.1 → 580.2"),
    ("packages", {"numpy": "2.4.6", "torch": "2.9.0"}, "package numpy 2.4.5 → 2.4.6"),
    ("packages", {"numpy": "2.4.5", "torch": "2.10.0"}, "torch 2.9.0 → 2.10.0"),
    ("packages", {"torch": "2.9.0"}, "package numpy 2.4.5 → none"),
    ("wheels", "d" * 64,
     f"other files of the same versions are installed: {'c' * 12} → {'d' * 12}"),
    ("records", "f" * 64,
     f"other files of the same versions are installed in the interpreter: {'e' * 12} → {'f' * 12}"),
    ("simulated", True, "evidence is of a real machine, and an emulated machine is asked for"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "said"), CHANGED, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(CHANGED)]
)
def test_a_change_is_named(name, value, said):
    other = replace(MADE, **{name: value})
    assert changes(MADE, other) == (said,)
    assert MADE.key != other.key


@given(ANY, ANY)
def test_keys_are_equal_where_and_only_where_nothing_changed(one, other):
    assert (one.key == other.key) == (one == other) == (changes(one, other) == ())


@given(ANY)
def test_what_is_asked_for_says_nothing_of_the_machine(one):
    there = replace(one, image="x", driver="y", packages={}, wheels="z", devices="", python="")
    assert there.asked == one.asked


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_empty_is_unknown(name):
    assert MADE.unknown == ()
    assert len(replace(MADE, **{name: ""}).unknown) == 1


def test_an_unknown_ingredient_is_called_so():
    assert replace(MADE, driver="", instance_type="").unknown == ("instance type", "driver")
    assert changes(MADE, replace(MADE, driver="")) == ("driver changed: 570.1 → unknown",)


def test_many_changes_are_cut():
    assert in_words(("a", "b", "c", "d", "e")) == "a; b; c; and 2 more"
    assert in_words(()) == ""


def test_how_a_machine_is_had_is_no_part_of_the_platform():
    host = Host(address="10.0.0.1", user="me", key_file="k", host_key="ssh-ed25519 A")
    asked = Platform(id="gpu", provider="aws", accelerator=Accelerator(vendor="nvidia", name="L4"))
    had = replace(
        asked,
        locations=("us-east-1",),
        market=("spot",),
        connect="private",
        hosts=(host,),
        environments=("image",),
        optional=True,
    )
    assert platform_document(had) == platform_document(asked)
    other = replace(asked, image={"ami": "ami-1"}, options={"subnet": "a"}, disk_gb=10)
    assert set(platform_document(other)) - set(platform_document(asked)) == {
        "image",
        "options",
        "disk_gb",
    }


def test_secrets_and_turns_are_never_proven():
    suite = Job(id="a", kind="suite", pytest=("x",))
    bench = Job(id="b", kind="benchmark", command=("x",), turns=True)
    assert refusal_of(suite, paired=True) == refusal_of(bench, paired=False) == ""
    assert "in turns" in refusal_of(bench, paired=True)
    assert "HF_TOKEN" in refusal_of(replace(suite, secrets=("HF_TOKEN",)), paired=False)


def test_age():
    spans = [timedelta(seconds=s) for s in (5, 90, 7199, 7200, 40 * 3600, 5 * 86400)]
    told = ["less than a minute", "1 min", "119 min", "2 h", "40 h", "5 d"]
    assert [age(span) for span in spans] == told
    day = 86400.0
    assert too_old(NOW - timedelta(days=1), now=NOW, max_age_s=day) == ""
    late = too_old(NOW - timedelta(hours=40), now=NOW, max_age_s=day)
    assert late == "evidence is 40 h old, 24 h allowed"


def test_a_machine_s_clock_is_believed_within_what_ours_saw():
    since, until = NOW, NOW + timedelta(hours=1)
    for said, told in ((-5, since), (0.5, NOW + timedelta(minutes=30)), (400, until)):
        assert produced_at(NOW + timedelta(hours=said), since=since, until=until) == told


def test_a_whole_cell_names_its_sources_once():
    assert all_reusable(["a"]) == "proven by run a: nothing its job depends on has changed"
    said = "proven by run b, a: nothing its 3 jobs depend on has changed"
    assert all_reusable(["b", "a", "b"]) == said
