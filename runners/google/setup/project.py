"""The resources that `seatrial bootstrap gcp` creates and `seatrial doctor gcp` checks.

The kill switch is a Cloud Run service of a public Python image, whose command is the file
`end_expired.py`, and a Cloud Scheduler job that calls it: nothing is built and nothing is stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from orchestrator.domain.cloud_account import AccountCheck, CheckLevel, SetupDocument
from orchestrator.domain.machine import ConfigError, Extent, ProviderError
from runners.google.account import GoogleAccount
from runners.google.setup.rest import ENDPOINT, Json, Rest

APIS = (
    "compute.googleapis.com",
    "tpu.googleapis.com",
    "cloudquotas.googleapis.com",
    "cloudbilling.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "iam.googleapis.com",
    "serviceusage.googleapis.com",
)
"""APIs that controllers and `seatrial doctor gcp` call."""
SWITCH_APIS = ("run.googleapis.com", "cloudscheduler.googleapis.com")
"""APIs of the kill switch."""
TPU_ROLE = "roles/tpu.admin"
"""Role of controllers and the kill switch.

Google documents no permissions of queued resources that a custom role could name.
"""

KILL_SWITCH = (
    "compute.instances.list",
    "compute.instances.delete",
    "compute.disks.list",
    "compute.disks.delete",
    "compute.addresses.list",
    "compute.addresses.delete",
)
CONTROLLER = (
    *KILL_SWITCH,
    "compute.instances.create",
    "compute.instances.get",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.instances.getGuestAttributes",
    "compute.instances.getSerialPortOutput",
    "compute.disks.create",
    "compute.disks.get",
    "compute.disks.setLabels",
    "compute.addresses.get",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
    "compute.networks.updatePolicy",
    "compute.firewalls.create",
    "compute.firewalls.get",
    "compute.firewalls.list",
    "compute.firewalls.delete",
    "compute.machineTypes.list",
    "compute.acceleratorTypes.list",
    "compute.regions.get",
    "compute.zones.list",
    "compute.projects.get",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
    "compute.globalOperations.get",
    "cloudquotas.quotas.get",
    "serviceusage.services.get",
    "serviceusage.services.use",
    "resourcemanager.projects.get",
)
TPU = ("tpu.nodes.create", "tpu.nodes.get", "tpu.nodes.list", "tpu.nodes.delete")
"""Permissions of `TPU_ROLE` that are checked."""
ACT_AS = "iam.serviceAccounts.actAs"
"""Roles for the project's default service account, which every TPU VM runs as."""


CODE = Path(__file__).with_name("end_expired.py")
IMAGE = "docker.io/library/python:3.13-slim"
REGION = "us-central1"
"""Region of the kill switch, which ends machines of all zones."""
SCHEDULE = "*/5 * * * *"
IAM, RUN, TIMER = "iam.googleapis.com", "run.googleapis.com", "cloudscheduler.googleapis.com"
PROJECTS, USAGE = "cloudresourcemanager.googleapis.com", "serviceusage.googleapis.com"
_AT_A_TIME = 100
"""Maximum number of permissions that one call tests."""


class GoogleAccountSetup:
    """Implements `orchestrator.domain.cloud_account.AccountSetup`."""

    def __init__(self, settings: Mapping[str, str], templates: Path) -> None:
        """Store the settings without a request.

        Args:
            settings: ``project``, ``gcp_project``, ``gcp_account_endpoint``.
            templates: Not needed here.
        """
        del templates
        self._project = settings.get("project") or "seatrial"
        self._account = GoogleAccount(settings, api=ENDPOINT)
        self._rest = Rest(settings, self._account)
        # Ids have 30 characters, and a project's name up to 40.
        self._id = f"seatrial-{sha256(self._project.encode()).hexdigest()[:10]}"

    @property
    def _cloud(self) -> str:
        return self._account.project

    @property
    def _email(self) -> str:
        return f"{self._id}@{self._cloud}.iam.gserviceaccount.com"

    @property
    def _roles(self) -> dict[str, Json]:
        """The custom roles, by id."""
        suffix = self._id.replace("-", "_")
        return {
            f"{suffix}_switch": _role(f"Seatrial {self._project}: kill switch", KILL_SWITCH),
            f"{suffix}_controller": _role(f"Seatrial {self._project}: controller", CONTROLLER),
        }

    @property
    def _place(self) -> str:
        return f"projects/{self._cloud}/locations/{REGION}"

    @property
    def _service(self) -> Json:
        """The Cloud Run service."""
        env = {"CLOUD_PROJECT": self._cloud, "SEATRIAL_PROJECT": self._project}
        return {
            "description": f"Ends what is past its expires-at label in {self._project}.",
            "ingress": "INGRESS_TRAFFIC_INTERNAL_ONLY",
            "template": {
                "serviceAccount": self._email,
                "timeout": "240s",
                "maxInstanceRequestConcurrency": 1,
                "scaling": {"maxInstanceCount": 1},
                "containers": [
                    {
                        "image": IMAGE,
                        "command": ["python3", "-c"],
                        "args": [CODE.read_text(encoding="utf-8")],
                        "env": [{"name": name, "value": value} for name, value in env.items()],
                        "resources": {"limits": {"cpu": "1", "memory": "512Mi"}},
                    }
                ],
            },
        }

    def _timer(self, url: str) -> Json:
        """Return the Cloud Scheduler job."""
        return {
            "name": f"{self._place}/jobs/{self._id}",
            "description": f"Calls the kill switch of {self._project}.",
            "schedule": SCHEDULE,
            "timeZone": "Etc/UTC",
            "attemptDeadline": "240s",
            "httpTarget": {
                "uri": url,
                "httpMethod": "POST",
                "oidcToken": {"serviceAccountEmail": self._email, "audience": url},
            },
        }

    def document(self) -> SetupDocument:
        """Return the requests that would be sent. Raises ProviderError."""
        wanted = {
            "apis": [*APIS, *SWITCH_APIS],
            "roles": self._roles,
            "serviceAccount": self._email,
            "service": self._service,
            "timer": self._timer("(the service's URL)"),
        }
        return SetupDocument(
            file_name=f"seatrial-account-{self._project}.json",
            text=json.dumps(wanted, indent=2) + "\n",
            parts=(
                "the APIs that Seatrial calls are enabled, and stay so",
                "a role for controllers, and one for the kill switch (Compute Engine only)",
                f"a service account {self._id} with that role and {TPU_ROLE}",
                f"the kill switch: a Cloud Run service in {REGION} that nobody else can call",
                "a Cloud Scheduler job that calls it every 5 minutes",
            ),
            account=f"Google Cloud project {self._cloud}",
        )

    def apply(self) -> Iterator[str]:
        """Create or update everything. Raises ProviderError."""
        names = [*APIS, *SWITCH_APIS]
        path = f"v1/projects/{self._cloud}/services:batchEnable"
        self._rest.finish(USAGE, self._rest.call("POST", USAGE, path, {"serviceIds": names}))
        yield f"enabled {len(names)} APIs"
        yield from self._make_roles()
        account = {"accountId": self._id, "serviceAccount": {"displayName": "Seatrial kill switch"}}
        self._rest.ensure("POST", IAM, f"v1/projects/{self._cloud}/serviceAccounts", account)
        self._bind(True)
        yield f"service account {self._email}"
        yield self._make_service()
        yield self._make_timer()
        yield self._first_call()
        role = f"projects/{self._cloud}/roles/{list(self._roles)[1]}"
        yield (
            f"controllers need {role} and, for TPUs, {TPU_ROLE}: `gcloud projects "
            f"add-iam-policy-binding {self._cloud} --member user:NAME --role {role}`"
        )

    def remove(self) -> Iterator[str]:
        """Remove everything except the APIs. Raises ProviderError."""
        for host, path in (
            (TIMER, f"v1/{self._place}/jobs/{self._id}"),
            (RUN, f"v2/{self._place}/services/{self._id}"),
        ):
            was = self._rest.delete(host, path)
            yield f"{'deleted' if was else 'there is no'} {host.partition('.')[0]} {self._id}"
        self._bind(False)
        path = f"v1/projects/{self._cloud}/serviceAccounts/{self._email}"
        yield f"{'deleted' if self._rest.delete(IAM, path) else 'there is no'} {self._email}"
        for role in self._roles:
            found = self._rest.find(IAM, f"v1/projects/{self._cloud}/roles/{role}")
            if found is not None and not found.get("deleted"):
                self._rest.delete(IAM, f"v1/projects/{self._cloud}/roles/{role}")
                yield f"deleted the role {role}"

    def check(self) -> Iterator[AccountCheck]:
        """Yield the checks of APIs, permissions and the kill switch. Raises ProviderError."""
        yield from self._check_apis()
        yield from self._check_permissions()
        yield from self._check_act_as()
        yield self._check_switch()

    def _make_roles(self) -> Iterator[str]:
        for role, body in self._roles.items():
            start = f"v1/projects/{self._cloud}/roles"
            found = self._rest.find(IAM, f"{start}/{role}")
            if found is None:
                self._rest.call("POST", IAM, start, {"roleId": role, "role": body})
            else:
                # A deleted role keeps its id for weeks.
                if found.get("deleted"):
                    self._rest.call("POST", IAM, f"{start}/{role}:undelete", {})
                self._rest.call("PATCH", IAM, f"{start}/{role}", body)
            yield f"role {role}"

    def _bind(self, wanted: bool) -> None:
        """Add or remove the kill switch's roles; other bindings are unchanged."""
        member = f"serviceAccount:{self._email}"
        roles = {
            f"projects/{self._cloud}/roles/{next(iter(self._roles))}",
            TPU_ROLE,
        }

        def try_once() -> bool:
            path = f"v3/projects/{self._cloud}"
            policy = self._rest.call(
                "POST", PROJECTS, f"{path}:getIamPolicy", {"options": {"requestedPolicyVersion": 3}}
            )
            if not _rebind(policy, member, roles if wanted else set()):
                return True
            try:
                self._rest.call("POST", PROJECTS, f"{path}:setIamPolicy", {"policy": policy})
            except ConfigError as error:
                # A service account that was made just now is not known everywhere yet.
                if "does not exist" not in str(error):
                    raise
                return False
            return True

        self._rest.until(f"binding {member}", try_once)

    def _make_service(self) -> str:
        start = f"v2/{self._place}/services"
        made = self._rest.ensure(
            "POST",
            RUN,
            f"{start}?serviceId={self._id}",
            self._service,
            update=f"{start}/{self._id}",
        )
        callers = {"role": "roles/run.invoker", "members": [f"serviceAccount:{self._email}"]}
        self._rest.call(
            "POST", RUN, f"{start}/{self._id}:setIamPolicy", {"policy": {"bindings": [callers]}}
        )
        return f"{'made' if made else 'updated'} the Cloud Run service {self._id}"

    def _make_timer(self) -> str:
        url = str(self._rest.get(RUN, f"v2/{self._place}/services/{self._id}")["uri"])
        job = self._timer(url)
        made = self._rest.ensure(
            "POST", TIMER, f"v1/{self._place}/jobs", job, update=f"v1/{job['name']}"
        )
        return f"{'made' if made else 'updated'} the Cloud Scheduler job {self._id}"

    def _first_call(self) -> str:
        """Call the kill switch once to find missing permissions at setup; return a summary."""
        path = f"v1/{self._place}/jobs/{self._id}"
        before = self._rest.get(TIMER, path).get("lastAttemptTime")
        self._rest.call("POST", TIMER, f"{path}:run", {})
        job: Json = {}

        def is_called() -> bool:
            nonlocal job
            job = self._rest.get(TIMER, path)
            return job.get("lastAttemptTime") not in (None, before)

        self._rest.until("the kill switch's first call", is_called)
        failed = job.get("status", {}).get("code", 0)
        if failed:
            raise ConfigError(
                f"the kill switch failed at its first call (code {failed}): look at the log of the "
                f"Cloud Run service {self._id}",
                extent=Extent.PROJECT,
            )
        return "called the kill switch once: it works"

    def _check_apis(self) -> Iterator[AccountCheck]:
        for name in APIS:
            command = f"gcloud services enable {name} --project {self._cloud}"
            try:
                found = self._rest.get(USAGE, f"v1/projects/{self._cloud}/services/{name}")
            except ProviderError as error:
                yield AccountCheck(CheckLevel.WARN, name, f"not known: {error}", command)
                continue
            if found.get("state") == "ENABLED":
                yield AccountCheck(CheckLevel.OK, name, "enabled")
            else:
                yield AccountCheck(CheckLevel.FAIL, name, "not enabled", command)

    def _check_permissions(self) -> Iterator[AccountCheck]:
        wanted = (*CONTROLLER, *TPU)
        granted: set[str] = set()
        for start in range(0, len(wanted), _AT_A_TIME):
            answer = self._rest.call(
                "POST",
                PROJECTS,
                f"v3/projects/{self._cloud}:testIamPermissions",
                {"permissions": list(wanted[start : start + _AT_A_TIME])},
            )
            granted.update(answer.get("permissions", ()))
        for name in wanted:
            is_there = name in granted
            yield AccountCheck(
                CheckLevel.OK if is_there else CheckLevel.FAIL,
                name,
                "granted" if is_there else "not granted",
                "" if is_there else self._grant(name),
            )

    def _check_act_as(self) -> Iterator[AccountCheck]:
        number = self._rest.get(PROJECTS, f"v3/projects/{self._cloud}")["name"].rpartition("/")[2]
        email = f"{number}-compute@developer.gserviceaccount.com"
        path = f"v1/projects/{self._cloud}/serviceAccounts/{email}:testIamPermissions"
        try:
            answer = self._rest.call("POST", IAM, path, {"permissions": [ACT_AS]})
        except ProviderError as error:
            yield AccountCheck(CheckLevel.WARN, ACT_AS, f"not known: {error}")
            return
        if ACT_AS in answer.get("permissions", ()):
            yield AccountCheck(CheckLevel.OK, ACT_AS, f"granted on {email}")
            return
        yield AccountCheck(
            CheckLevel.WARN,
            ACT_AS,
            f"not granted on {email}: TPU VMs are refused",
            f"gcloud iam service-accounts add-iam-policy-binding {email} --project {self._cloud} "
            "--member user:NAME --role roles/iam.serviceAccountUser",
        )

    def _check_switch(self) -> AccountCheck:
        name, command = "kill switch", "seatrial bootstrap gcp"
        try:
            job = self._rest.find(TIMER, f"v1/{self._place}/jobs/{self._id}")
        except ProviderError as error:
            return AccountCheck(CheckLevel.WARN, name, f"not known: {error}")
        if job is None:
            text = "there is none: what a dead controller leaves is not ended, and a TPU has no end"
            return AccountCheck(CheckLevel.WARN, name, text, command)
        failed = job.get("status", {}).get("code", 0)
        if job.get("state") != "ENABLED" or failed:
            text = f"the timer {self._id} is {job.get('state')}, its last call ended with {failed}"
            return AccountCheck(CheckLevel.FAIL, name, text, command)
        last = job.get("lastAttemptTime", "never")
        return AccountCheck(CheckLevel.OK, name, f"the timer {self._id} called it last at {last}")

    def _grant(self, permission: str) -> str:
        role = (
            TPU_ROLE
            if permission.startswith("tpu.")
            else f"projects/{self._cloud}/roles/{list(self._roles)[1]}"
        )
        return (
            f"gcloud projects add-iam-policy-binding {self._cloud} --member user:NAME --role {role}"
        )


def _role(title: str, included: tuple[str, ...]) -> Json:
    return {"title": title, "includedPermissions": sorted(included), "stage": "GA"}


def _rebind(policy: Json, member: str, roles: set[str]) -> bool:
    """Give the member exactly these roles without a condition; return False without a change."""
    bindings = policy.setdefault("bindings", [])
    has = {one["role"] for one in bindings if member in one["members"]}
    if has == roles:
        return False
    for one in bindings:
        one["members"] = [each for each in one["members"] if each != member]
    bindings += [{"role": role, "members": [member]} for role in sorted(roles)]
    policy["bindings"] = [one for one in bindings if one["members"]]
    return True
