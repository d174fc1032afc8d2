"""What a transcript may say of somebody's account, and what not."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.cloud_smoke.recording import compute_call, rest_code
from tests.cloud_smoke.transcript import Disguise

DISGUISE = Disguise(b"secret")
ANSWER = {
    "InstanceId": "i-0123456789abcdef0",
    "State": {"Name": "running", "Code": 16},
    "InstanceType": "g5.xlarge",
    "LaunchTime": datetime(2026, 1, 2, tzinfo=UTC),
    "OwnerId": "123456789012",
    "PublicIpAddress": "198.51.100.7",
    "status": "seen-by 123456789012",
    "Tags": [{"Key": "Name", "Value": "mine"}, {"Key": "i-0123456789abcdef0", "Value": ""}],
    "Numbers": [1, 2, 3, 4, 5],
    "ProjectNumber": 123456789012,
    "Blob": b"bytes",
    "Encrypted": True,
    "123456789012": None,
}


def test_words_that_say_how_it_went_stay() -> None:
    shape = DISGUISE.shape(ANSWER)
    assert isinstance(shape, dict)
    assert shape["State"] == {"Name": "running", "Code": 16}
    assert shape["InstanceType"] == "g5.xlarge"
    assert shape["LaunchTime"] == "2026-01-02T00:00:00+00:00"
    assert shape["Numbers"] == [1, 2, 3, "and 2 more"]
    assert shape["Encrypted"] is True


@pytest.mark.parametrize("secret", ["0123456789abcdef0", "123456789012", "198.51.100", "mine"])
def test_what_is_somebodys_own_does_not(secret: str) -> None:
    assert secret not in repr(DISGUISE.shape(ANSWER))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("198.51.100.7", "address"),
        ("10.0.0.0/8", "address"),
        ("fd00::5", "address"),
        ("i-0123456789abcdef0", "id"),
        ("123456789012", "account"),
        ("ssh-ed25519 AAAA x", "key"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nx", "key"),
        ("projects/mine/zones/z", "link"),
        ("whatever", "text"),
    ],
)
def test_a_stand_in_says_the_kind_and_is_the_same_everywhere(value: str, kind: str) -> None:
    stand_in = DISGUISE.of(value)
    assert stand_in.startswith(f"<{kind} ")
    assert stand_in == Disguise(b"secret").of(value)
    assert stand_in != Disguise(b"another").of(value)
    assert stand_in != DISGUISE.of(value + "0")


@pytest.mark.parametrize(
    ("method", "path", "name", "where"),
    [
        ("POST", "zones/us-central1-a/instances", "instances.insert", "us-central1-a"),
        ("GET", "zones/us-central1-a/instances/mine", "instances.get", "us-central1-a"),
        ("DELETE", "zones/us-central1-a/instances/mine", "instances.delete", "us-central1-a"),
        ("GET", "zones/z/instances/mine/getGuestAttributes?q=1", "instances.getGuestAttributes",
         "z"),
        ("GET", "zones/z/instances/mine/serialPort", "instances.getSerialPortOutput", "z"),
        ("GET", "zones/z/operations/op", "zoneOperations.get", "z"),
        ("GET", "global/operations/op", "globalOperations.get", ""),
        ("GET", "aggregated/disks?filter=x", "disks.aggregatedList", ""),
        ("GET", "global/images/family/mine", "images.getFromFamily", ""),
        ("GET", "regions/us-west1", "regions.get", ""),
        ("GET", "", "projects.get", ""),
    ],
)  # fmt: skip
def test_compute_calls_have_the_names_that_the_lab_knows(
    method: str, path: str, name: str, where: str
) -> None:
    url = f"https://compute.googleapis.com/compute/v1/projects/secret-1/{path}".rstrip("/")
    assert compute_call(method, url) == (name, where)


def test_other_services_are_not_told_apart() -> None:
    assert compute_call("GET", "https://cloudbilling.googleapis.com/v1/services/X/skus")[0] == (
        "other.get"
    )


@pytest.mark.parametrize(
    ("status", "answer", "code"),
    [
        (200, {}, "ok"),
        (403, {"error": {"errors": [{"reason": "quotaExceeded"}]}}, "quotaExceeded"),
        (401, {"error": {"status": "UNAUTHENTICATED"}}, "UNAUTHENTICATED"),
        (502, "a page that is no JSON", "HTTP.502"),
    ],
)
def test_google_says_how_it_went(status: int, answer: object, code: str) -> None:
    assert rest_code(status, answer) == code
