"""Each request held against botocore's description of the service, as AWS itself would hold it.

A parameter that is unknown or misspelt, a value that an enumeration does not have, a number that
is none and a required parameter that is missing are refused. What the description does not say
(which combinations are possible) is checked where the call is answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import botocore.session
from botocore.model import ListShape, OperationModel, ServiceModel, Shape, StructureShape

from tests.lab.aws.wire import ApiError, Request

_NAMES = {"servicequotas": "service-quotas", "tagging": "resourcegroupstaggingapi"}
"""botocore's names of services, where they are not those that a signature has."""
_ABOUT_THE_CALL = ("Action", "Version")
_NUMBERS = ("integer", "long")
_FLAGS = ("true", "false")
Tree = dict[str, Any]


def check(request: Request) -> None:
    """Refuse what the service would. Raises ApiError."""
    operation = _operation(request.service, request.name)
    if operation is None or operation.input_shape is None:
        return
    if request.is_json:
        _check_json(operation.input_shape, request.data, "")
    elif operation.service_model.metadata["protocol"] == "ec2":
        _check_form(operation.input_shape, _tree(request.form), "")


@cache
def _service(name: str) -> ServiceModel | None:
    session = botocore.session.Session()
    known = _NAMES.get(name, name)
    if known not in session.get_available_services():
        return None
    return ServiceModel(session.get_component("data_loader").load_service_model(known, "service-2"))


@cache
def _operation(service: str, name: str) -> OperationModel | None:
    model = _service(service)
    if model is None:
        return None
    if name not in model.operation_names:
        raise ApiError("InvalidAction", f"The action {name} is not valid for this web service.")
    return model.operation_model(name)


def _tree(form: Mapping[str, str]) -> Tree:
    """``A.1.B=x`` as ``{"A": {"1": {"B": "x"}}}``."""
    tree: Tree = {}
    for key, value in form.items():
        if key in _ABOUT_THE_CALL:
            continue
        *parents, last = key.split(".")
        here = tree
        for part in parents:
            here = here.setdefault(part, {})
            if not isinstance(here, dict):
                raise _unknown(key)
        here[last] = value
    return tree


def _check_form(shape: Shape, given: Any, path: str) -> None:
    if isinstance(shape, StructureShape | ListShape) is not isinstance(given, dict):
        raise _unknown(path.rstrip("."))
    if isinstance(shape, StructureShape):
        _check_members(shape, given, path)
    elif isinstance(shape, ListShape):
        _check_entries(shape, given, path)
    else:
        _check_text(shape, given, path)


def _check_members(shape: StructureShape, given: Tree, path: str) -> None:
    members = {_wire_name(name, each): each for name, each in shape.members.items()}
    required = {_wire_name(name, shape.members[name]) for name in shape.required_members}
    for name in sorted(required - given.keys()):
        raise _missing(f"{path}{name}")
    for name, value in given.items():
        if name not in members:
            raise _unknown(f"{path}{name}")
        below = f"{path}{name}" + ("." if isinstance(value, dict) else "")
        _check_form(members[name], value, below)


def _check_entries(shape: ListShape, given: Tree, path: str) -> None:
    for name, value in given.items():
        if not name.isdigit():
            raise _unknown(f"{path}{name}")
        _check_form(shape.member, value, f"{path}{name}" + ("." if isinstance(value, dict) else ""))


def _check_text(shape: Shape, given: str, path: str) -> None:
    is_number = given.lstrip("-").isdigit()
    fits = (
        (shape.type_name not in _NUMBERS or is_number)
        and (shape.type_name != "boolean" or given.lower() in _FLAGS)
        and (not getattr(shape, "enum", None) or given in shape.enum)
    )
    if not fits:
        raise ApiError("InvalidParameterValue", f"Invalid value '{given}' for {path}.")


def _check_json(shape: Shape, given: Any, path: str) -> None:
    if isinstance(shape, StructureShape):
        for name in (*given, *shape.required_members):
            if name not in shape.members or name not in given:
                told = "must not be null" if name in shape.members else f"is not of {shape.name}"
                raise ApiError("ValidationException", f"{path}{name} {told}")
            _check_json(shape.members[name], given[name], f"{path}{name}.")
    elif isinstance(shape, ListShape):
        for value in given:
            _check_json(shape.member, value, path)
    elif getattr(shape, "enum", None) and given not in shape.enum:
        told = f"{path.rstrip('.')}: {given!r} must satisfy enum value set"
        raise ApiError("ValidationException", f"{told}: {shape.enum}")


def _wire_name(name: str, member: Shape) -> str:
    """As the protocol of EC2 spells a member."""
    told = member.serialization
    if "queryName" in told:
        return str(told["queryName"])
    spelled = str(told.get("name", name))
    return spelled[0].upper() + spelled[1:]


def _unknown(name: str) -> ApiError:
    return ApiError("UnknownParameter", f"The parameter {name} is not recognized")


def _missing(name: str) -> ApiError:
    return ApiError("MissingParameter", f"The request must contain the parameter {name}")
