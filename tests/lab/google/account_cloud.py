"""The administrative APIs of the lab's Google: what sets up a project, in one server.

Bodies for Cloud Run and Cloud Scheduler are read by Google's own message types, so that a field or
value that Google does not know is refused here as it is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.cloud import run_v2, scheduler_v1
from google.protobuf import json_format

from tests.lab.google.front import ApiError, Json, Request, RestFront, utc_now

NUMBER = "123456789"
_IAM, _RUN, _TIMER = (
    "/iam.googleapis.com/v1",
    "/run.googleapis.com/v2",
    "/cloudscheduler.googleapis.com/v1",
)
_CRM, _USAGE = "/cloudresourcemanager.googleapis.com/v3", "/serviceusage.googleapis.com/v1"
_P, _L = "projects/<project>", "projects/<project>/locations/<location>"
ROUTES = {
    "services.batchEnable": f"POST {_USAGE}/{_P}/services:batchEnable",
    "services.get": f"GET {_USAGE}/{_P}/services/<id>",
    "usage.operations.get": f"GET {_USAGE}/operations/<id>",
    "projects.get": f"GET {_CRM}/{_P}",
    "projects.getIamPolicy": f"POST {_CRM}/{_P}:getIamPolicy",
    "projects.setIamPolicy": f"POST {_CRM}/{_P}:setIamPolicy",
    "projects.testIamPermissions": f"POST {_CRM}/{_P}:testIamPermissions",
    "roles.get": f"GET {_IAM}/{_P}/roles/<id>",
    "roles.create": f"POST {_IAM}/{_P}/roles",
    "roles.patch": f"PATCH {_IAM}/{_P}/roles/<id>",
    "roles.undelete": f"POST {_IAM}/{_P}/roles/<id>:undelete",
    "roles.delete": f"DELETE {_IAM}/{_P}/roles/<id>",
    "accounts.create": f"POST {_IAM}/{_P}/serviceAccounts",
    "accounts.delete": f"DELETE {_IAM}/{_P}/serviceAccounts/<id>",
    "accounts.testIamPermissions": f"POST {_IAM}/{_P}/serviceAccounts/<id>:testIamPermissions",
    "run.create": f"POST {_RUN}/{_L}/services",
    "run.get": f"GET {_RUN}/{_L}/services/<id>",
    "run.patch": f"PATCH {_RUN}/{_L}/services/<id>",
    "run.delete": f"DELETE {_RUN}/{_L}/services/<id>",
    "run.setIamPolicy": f"POST {_RUN}/{_L}/services/<id>:setIamPolicy",
    "run.operations.get": f"GET {_RUN}/{_L}/operations/<id>",
    "jobs.create": f"POST {_TIMER}/{_L}/jobs",
    "jobs.get": f"GET {_TIMER}/{_L}/jobs/<id>",
    "jobs.patch": f"PATCH {_TIMER}/{_L}/jobs/<id>",
    "jobs.delete": f"DELETE {_TIMER}/{_L}/jobs/<id>",
    "jobs.run": f"POST {_TIMER}/{_L}/jobs/<id>:run",
}  # fmt: skip


class AccountCloud(RestFront):
    """One project and whoever signs in to it.

    Attributes:
        granted: Permissions that whoever signs in has.
        call: What a timer's call to a Cloud Run service answers: an HTTP status.
        unknown_looks: For how many bindings a new service account is not known yet.
    """

    def __init__(self) -> None:
        super().__init__(ROUTES, utc_now)
        self.granted: set[str] = set()
        self.enabled: set[str] = set()
        self.roles: dict[str, Json] = {}
        self.accounts: dict[str, Json] = {}
        self.services: dict[str, Json] = {}
        self.jobs: dict[str, Json] = {}
        self.bindings: list[Json] = [{"role": "roles/owner", "members": ["user:owner@example.com"]}]
        self.callers: dict[str, Json] = {}
        self.call: Callable[[Json], int] = lambda _: 200
        self.unknown_looks = 0
        self._running: dict[str, Json] = {}

    def answer(self, request: Request) -> Json:
        name = "_" + request.name.replace(".", "_")
        answer: Callable[[Request], Json] = getattr(self, name)
        return answer(request)

    def _operation(self, request: Request) -> Json:
        """Not done at first: a client has to look again."""
        name = f"operations/{len(self._running)}"
        if "location" in request.path:
            where = request.path
            name = f"projects/{where['project']}/locations/{where['location']}/{name}"
        self._running[name.rpartition("/")[2]] = {"name": name}
        return {"name": name}

    def _run_operations_get(self, request: Request) -> Json:
        found = self._running[request.path["id"]]
        told = dict(found)
        found["done"] = True
        return told

    _usage_operations_get = _run_operations_get

    def _services_batchEnable(self, request: Request) -> Json:  # noqa: N802 - Google's name
        _known(request.body, {"serviceIds"})
        if len(request.body["serviceIds"]) > 20:
            raise ApiError("badRequest", "A batch request can be for at most 20 services.")
        self.enabled.update(request.body["serviceIds"])
        return self._operation(request)

    def _services_get(self, request: Request) -> Json:
        state = "ENABLED" if request.path["id"] in self.enabled else "DISABLED"
        return {"name": request.path["id"], "state": state}

    def _projects_get(self, request: Request) -> Json:
        return {"name": f"projects/{NUMBER}", "projectId": request.path["project"]}

    def _projects_getIamPolicy(self, request: Request) -> Json:  # noqa: N802
        return {"version": 1, "etag": self._etag, "bindings": self.bindings}

    @property
    def _etag(self) -> str:
        return str(abs(hash(str(self.bindings))))

    def _projects_setIamPolicy(self, request: Request) -> Json:  # noqa: N802
        policy = request.body["policy"]
        if policy["etag"] != self._etag:
            raise ApiError("aborted", "There were concurrent policy changes.", 409)
        for member in {one for binding in policy["bindings"] for one in binding["members"]}:
            email = member.partition("serviceAccount:")[2]
            if email and (email not in self.accounts or self.unknown_looks > 0):
                self.unknown_looks -= 1
                raise ApiError("badRequest", f"Service account {email} does not exist.")
        self.bindings = policy["bindings"]
        return {**policy, "etag": self._etag}

    def _projects_testIamPermissions(self, request: Request) -> Json:  # noqa: N802
        asked = request.body["permissions"]
        if len(asked) > 100:
            raise ApiError("badRequest", "At most 100 permissions can be tested.")
        return {"permissions": [one for one in asked if one in self.granted]}

    _accounts_testIamPermissions = _projects_testIamPermissions  # noqa: N815

    def _roles_get(self, request: Request) -> Json:
        return self._of(self.roles, request)

    def _roles_create(self, request: Request) -> Json:
        _known(request.body, {"roleId", "role"})
        _known(request.body["role"], {"title", "includedPermissions", "stage"})
        role = request.body["roleId"]
        if role in self.roles:
            raise ApiError("alreadyExists", f"A role named {role} already exists.", 409)
        self.roles[role] = dict(request.body["role"])
        return self.roles[role]

    def _roles_patch(self, request: Request) -> Json:
        role = self._of(self.roles, request)
        if role.get("deleted"):
            raise ApiError("failedPrecondition", "You can't update a deleted role.")
        role.update(request.body)
        return role

    def _roles_undelete(self, request: Request) -> Json:
        self._of(self.roles, request).pop("deleted")
        return {}

    def _roles_delete(self, request: Request) -> Json:
        self._of(self.roles, request)["deleted"] = True
        return {}

    def _accounts_create(self, request: Request) -> Json:
        _known(request.body, {"accountId", "serviceAccount"})
        given = request.body["accountId"]
        if not 6 <= len(given) <= 30:
            raise ApiError("badRequest", f"accountId {given} has not 6 to 30 characters")
        email = f"{given}@{request.path['project']}.iam.gserviceaccount.com"
        if email in self.accounts:
            raise ApiError("alreadyExists", f"Service account {given} already exists.", 409)
        self.accounts[email] = {"email": email}
        return self.accounts[email]

    def _accounts_delete(self, request: Request) -> Json:
        self._of(self.accounts, request)
        return self.accounts.pop(request.path["id"]) and {}

    def _run_create(self, request: Request) -> Json:
        name = request.query["serviceId"]
        if name in self.services:
            raise ApiError("alreadyExists", f"Resource '{name}' already exists.", 409)
        self.services[name] = self._service(name, request.body)
        return self._operation(request)

    def _run_patch(self, request: Request) -> Json:
        self._of(self.services, request)
        self.services[request.path["id"]] = self._service(request.path["id"], request.body)
        return self._operation(request)

    def _service(self, name: str, body: Json) -> Json:
        _read(run_v2.Service, body)
        account = body["template"]["serviceAccount"]
        if account not in self.accounts:
            raise ApiError("badRequest", f"Service account {account} does not exist.")
        return {**body, "uri": f"https://{name}-lab.a.run.app"}

    def _run_get(self, request: Request) -> Json:
        return self._of(self.services, request)

    def _run_delete(self, request: Request) -> Json:
        self._of(self.services, request)
        del self.services[request.path["id"]]
        return self._operation(request)

    def _run_setIamPolicy(self, request: Request) -> Json:  # noqa: N802
        self.callers[request.path["id"]] = request.body["policy"]
        return request.body["policy"]

    def _jobs_create(self, request: Request) -> Json:
        name = request.body["name"].rpartition("/")[2]
        if name in self.jobs:
            raise ApiError("alreadyExists", f"Job {name} already exists.", 409)
        _read(scheduler_v1.Job, request.body)
        self.jobs[name] = {**request.body, "state": "ENABLED"}
        return self.jobs[name]

    def _jobs_patch(self, request: Request) -> Json:
        _read(scheduler_v1.Job, request.body)
        job = self._of(self.jobs, request)
        job.update(request.body)
        return job

    def _jobs_get(self, request: Request) -> Json:
        return self._of(self.jobs, request)

    def _jobs_delete(self, request: Request) -> Json:
        self._of(self.jobs, request)
        return self.jobs.pop(request.path["id"]) and {}

    def _jobs_run(self, request: Request) -> Json:
        job = self._of(self.jobs, request)
        target = job["httpTarget"]["uri"].removeprefix("https://").partition("-lab")[0]
        status = self.call(self.services[target]["template"]["containers"][0])
        job["lastAttemptTime"] = self.clock().isoformat()
        job["status"] = {} if status == 200 else {"code": 13}
        return job

    def _of(self, kept: dict[str, Json], request: Request) -> Json:
        found = kept.get(request.path["id"])
        if found is None:
            raise ApiError("notFound", f"{request.path['id']} was not found.", 404)
        return found


def _known(body: Json, fields: set[str]) -> None:
    unknown = body.keys() - fields
    if unknown:
        raise ApiError("badRequest", f"Invalid JSON payload: unknown name {min(unknown)}")


def _read(kind: Any, body: Json) -> None:
    try:
        json_format.ParseDict(body, kind.pb(kind()))
    except json_format.ParseError as error:
        raise ApiError("badRequest", f"Invalid JSON payload: {error}") from error
