"""The table of errors: every code and text of which is known what it means."""

from __future__ import annotations

import pytest
from google.api_core import exceptions as api
from google.auth import exceptions as sign_in
from google.rpc import error_details_pb2, status_pb2

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    CredentialsError,
    Extent,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
)
from runners.tpu.client import answer_of, guarded, is_loopback, kinds, status_answer
from runners.tpu.errors import CODES, ApiRefusal, classify, code_name, refused

NO_CAPACITY = (
    'There is no more capacity in the zone "us-west4-a"; you can try in another zone where '
    "Cloud TPU Nodes are offered"
)
LITEPOD = (
    "Quota limit 'TPUV5sLitepodServingPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 4 "
)
DISABLED = "Cloud TPU API has not been used in project 1 before or it is disabled."
REFRESH = "Getting metadata from plugin failed with error: ('invalid_grant: expired', RefreshError)"
RATE = "Quota exceeded for quota metric 'CreateNode requests' and limit 'CreateNode per minute'"
# github.com/google/maxtext and github.com/skypilot-org/skypilot: texts of refused requests
NO_SUBMIT = (
    "User does not have permission to submit requests for accelerator type "
    '"v5litepod-4" in location us-central1-a'
)
NO_LOCATION = "Permission denied on 'locations/us-central1-a' (or it may not exist)."
NO_RESOURCE = (
    "Permission 'tpu.nodes.create' denied on resource '//tpu.googleapis.com/projects/p/locations/"
    "us-west4-a' (or it may not exist)."
)
NO_ADDRESS = (
    "Constraint constraints/compute.vmExternalIpAccess violated for project 1. Add instance "
    "projects/p/zones/us-west4-a/instances/x to the constraint to use external IP with it."
)
QF = ("QuotaFailure",)

TABLE = [
    # stockouts
    ("RESOURCE_EXHAUSTED", NO_CAPACITY, (), CapacityError, Extent.PLACE),
    ("RESOURCE_EXHAUSTED", "", (), CapacityError, Extent.PLACE),
    ("RESOURCE_EXHAUSTED", "Insufficient reserved capacity", (), CapacityError, Extent.PLACE),
    ("FAILED_PRECONDITION", "Insufficient reserved capacity.", (), CapacityError, Extent.PLACE),
    ("UNAVAILABLE", NO_CAPACITY, (), CapacityError, Extent.PLACE),
    (
        "INVALID_ARGUMENT",
        "the accelerator v5litepod-1 was not found in zone us-west4-b",
        (),
        CapacityError,
        Extent.PLACE,
    ),
    # quotas: as far as the words say
    ("RESOURCE_EXHAUSTED", LITEPOD + "in zone us-west4-a.", QF, QuotaError, Extent.PLACE),
    ("RESOURCE_EXHAUSTED", LITEPOD + "in region us-west4.", QF, QuotaError, Extent.MARKET),
    ("RESOURCE_EXHAUSTED", LITEPOD + "in zone us-west4-a.", (), QuotaError, Extent.PLACE),
    ("RESOURCE_EXHAUSTED", LITEPOD + "in region us-west4.", (), QuotaError, Extent.MARKET),
    ("RESOURCE_EXHAUSTED", "exceeded", (*QF, "0 in region us-west4"), QuotaError, Extent.MARKET),
    ("RESOURCE_EXHAUSTED", "Quota TPUS_ALL_REGIONS exceeded", (), QuotaError, Extent.PROJECT),
    ("RESOURCE_EXHAUSTED", "not enough resources in zone x", QF, QuotaError, Extent.PLACE),
    # throttles are no quota of ours
    (
        "RESOURCE_EXHAUSTED",
        RATE,
        ("ErrorInfo", "RATE_LIMIT_EXCEEDED"),
        ProviderUnavailableError,
        Extent.PLACE,
    ),
    ("RESOURCE_EXHAUSTED", "Too many requests per minute", QF, ProviderUnavailableError, None),
    # unknown outcome
    ("UNAVAILABLE", "The service is currently unavailable.", (), ProviderUnavailableError, None),
    ("DEADLINE_EXCEEDED", "Deadline Exceeded", (), ProviderUnavailableError, None),
    ("INTERNAL", "Internal error encountered.", (), ProviderUnavailableError, None),
    ("UNKNOWN", "Stream removed", (), ProviderUnavailableError, None),
    ("ABORTED", "conflict", (), ProviderUnavailableError, None),
    ("CANCELLED", "", (), ProviderUnavailableError, None),
    ("DATA_LOSS", "", (), ProviderUnavailableError, None),
    # who we are
    ("UNAUTHENTICATED", "invalid credentials", (), CredentialsError, Extent.PROJECT),
    ("PERMISSION_DENIED", "tpu.nodes.create denied", (), CredentialsError, Extent.PROJECT),
    ("PERMISSION_DENIED", DISABLED, (), CredentialsError, Extent.PROJECT),
    ("PERMISSION_DENIED", "x", ("ErrorInfo", "SERVICE_DISABLED"), CredentialsError, None),
    ("PERMISSION_DENIED", "accessNotConfigured", (), CredentialsError, Extent.PROJECT),
    ("FAILED_PRECONDITION", "Billing is not enabled", (), CredentialsError, Extent.PROJECT),
    ("UNAVAILABLE", REFRESH, (), CredentialsError, Extent.PROJECT),
    # a zone that is not for us
    (
        "NOT_FOUND",
        "Location us-foo1-z is not found or access is unauthorized.",
        (),
        CapacityError,
        Extent.ZONE,
    ),
    (
        "PERMISSION_DENIED",
        "Location us-foo1-z is not found or access is unauthorized.",
        (),
        CapacityError,
        Extent.ZONE,
    ),
    # refusals of one zone or type that are no lack of a role
    ("PERMISSION_DENIED", NO_SUBMIT, (), CapacityError, Extent.PLACE),
    ("PERMISSION_DENIED", NO_LOCATION, (), CapacityError, Extent.ZONE),
    ("PERMISSION_DENIED", NO_RESOURCE, (), CredentialsError, Extent.PROJECT),
    # a policy of the organisation
    ("FAILED_PRECONDITION", NO_ADDRESS, (), ConfigError, Extent.PROJECT),
    # the request itself
    ("INVALID_ARGUMENT", "runtime version 'x' is not valid", (), ConfigError, Extent.PLACE),
    ("NOT_FOUND", "network 'x' does not exist", (), ConfigError, Extent.PLACE),
    ("ALREADY_EXISTS", "Resource 'x' already exists", (), ConfigError, Extent.PLACE),
    ("FAILED_PRECONDITION", "the node is being deleted", (), ConfigError, Extent.PLACE),
    ("OUT_OF_RANGE", "", (), ConfigError, Extent.PLACE),
    ("UNIMPLEMENTED", "", (), ConfigError, Extent.PLACE),
]


@pytest.mark.parametrize(("code", "words", "details", "kind", "extent"), TABLE)
def test_every_row_of_the_table(
    code: str,
    words: str,
    details: tuple[str, ...],
    kind: type[ProviderError],
    extent: Extent | None,
) -> None:
    error = refused(ApiRefusal(code, words, details), "create node us-west4-a/nodes/x")
    assert type(error) is kind
    assert error.code == code
    assert extent is None or error.extent is extent
    assert "create node us-west4-a/nodes/x" in str(error)
    assert words in str(error)


def test_every_status_has_a_row() -> None:
    tried = {row[0] for row in TABLE}
    assert tried == set(CODES) - {"OK"}


@pytest.mark.parametrize(
    ("number", "words", "ended"),
    [
        (8, "There is no more capacity in the zone", "capacity"),
        (8, "", "capacity"),
        (8, "Insufficient reserved capacity", "capacity"),
        (8, LITEPOD + "in zone us-west4-a", "quota"),
        (9, "Insufficient reserved capacity", "capacity"),
        (9, "", "capacity"),
        (9, NO_ADDRESS, "failed"),
        (3, "update is not supported while in state PREEMPTED", "preempted"),
        (3, "bad runtime version", "failed"),
        (13, "an internal error occurred", "failed"),
        (14, "", "failed"),
        (99, "", "failed"),
    ],
)
def test_what_an_operation_ends_with(number: int, words: str, ended: str) -> None:
    assert classify(status_answer(number, words, ())).ended == ended


def test_a_late_refusal_differs_from_one_at_the_call_where_the_facts_say_so() -> None:
    words = "the request could not be met"
    at_once = refused(ApiRefusal("FAILED_PRECONDITION", words), "create")
    late = refused(ApiRefusal("FAILED_PRECONDITION", words, late=True), "create")
    assert (type(at_once), type(late)) == (ConfigError, CapacityError)


def test_the_advice_names_the_api_and_the_role() -> None:
    assert "gcloud services enable tpu.googleapis.com" in str(
        refused(ApiRefusal("PERMISSION_DENIED", DISABLED), "create")
    )
    assert "roles/tpu.admin" in str(refused(ApiRefusal("PERMISSION_DENIED", "no"), "create"))


def test_codes_by_number() -> None:
    assert [code_name(n) for n in (0, 3, 8, 9, 14, 16)] == [
        "OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "UNAVAILABLE",
        "UNAUTHENTICATED",
    ]  # fmt: skip
    assert code_name(-1) == code_name(17) == "UNKNOWN"


# what Google's own exceptions become


def test_an_http_error_has_the_status_of_its_number() -> None:
    assert answer_of(api.TooManyRequests("slow")).code == "RESOURCE_EXHAUSTED"
    assert answer_of(api.Forbidden("no")).code == "PERMISSION_DENIED"
    assert answer_of(api.BadGateway("html")).code == "UNKNOWN"
    assert answer_of(api.NotFound("no")).code == "NOT_FOUND"


def test_a_grpc_error_keeps_its_status() -> None:
    assert answer_of(api.DeadlineExceeded("late")).code == "DEADLINE_EXCEEDED"
    assert answer_of(api.AlreadyExists("there")).code == "ALREADY_EXISTS"


def test_details_tell_their_kind_and_what_they_say() -> None:
    violation = error_details_pb2.QuotaFailure.Violation(description="0 in region us-west4")
    failure = error_details_pb2.QuotaFailure(violations=[violation])
    info = error_details_pb2.ErrorInfo(reason="RATE_LIMIT_EXCEEDED")
    assert kinds([failure]) == ("QuotaFailure", "0 in region us-west4")
    assert kinds([info]) == ("ErrorInfo", "RATE_LIMIT_EXCEEDED")
    status = status_pb2.Status(code=8)
    status.details.add().Pack(failure)
    assert kinds(status.details) == ("QuotaFailure", "0 in region us-west4")


def raising(error: Exception) -> None:
    def call() -> None:
        raise error

    guarded("list nodes", call)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (sign_in.DefaultCredentialsError("none found"), CredentialsError),
        (sign_in.RefreshError("invalid_grant"), CredentialsError),
        (sign_in.TransportError("no route"), ProviderUnavailableError),
        (api.RetryError("gave up", cause=None), ProviderUnavailableError),
        (ConnectionResetError("by peer"), ProviderUnavailableError),
        (api.GatewayTimeout("late"), ProviderUnavailableError),
        (api.BadGateway("<html>"), ProviderUnavailableError),
        (api.Unauthenticated("who?"), CredentialsError),
    ],
)
def test_no_exception_of_googles_leaves_the_adapter(
    raised: Exception, kind: type[ProviderError]
) -> None:
    with pytest.raises(kind, match="list nodes"):
        raising(raised)


@pytest.mark.parametrize(
    ("endpoint", "loopback"),
    [
        ("127.0.0.1:9", True), ("127.7.7.7:9", True), ("localhost:9", True), ("[::1]:9", True),
        ("10.0.0.1:9", False), ("tpu.example.com:443", False), ("localhost.example.com:443", False),
    ],
)  # fmt: skip
def test_only_this_computer_is_spoken_to_in_the_open(endpoint: str, loopback: bool) -> None:
    assert is_loopback(endpoint) is loopback
