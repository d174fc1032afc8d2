"""What containers are made of, checked without an engine: schemas, and what the files say."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from orchestrator.config import Settings

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
CONTROLLERS = ("controller-1", "controller-2")


def compose() -> dict[str, Any]:
    return dict(YAML(typ="safe").load(COMPOSE))


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions with their arguments, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (x.partition(" ") for x in joined.splitlines() if x)]


def of(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def health_check() -> list[str]:
    """The image's health check as a command of this computer, for `SEATRIAL_HOME`."""
    (check,) = of("HEALTHCHECK")
    _, *words = json.loads(check.partition("CMD ")[2])
    return [sys.executable, *words]


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("vendor.compose-spec", "docker-compose.yml"),
        ("vendor.github-actions", ".github/actions/gate/action.yml"),
        ("vendor.github-workflows", "docs/examples/ci/github.yml"),
        ("vendor.github-workflows", "docs/examples/ci/github-fork-build.yml"),
        ("vendor.github-workflows", "docs/examples/ci/github-fork-check.yml"),
        ("vendor.gitlab-ci", "docs/examples/ci/gitlab.yml"),
    ],
)
def test_files_for_others_keep_the_others_schemas(schema: str, file: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_schema_that_is_broken_is_seen(tmp_path: Path) -> None:
    broken = tmp_path / "compose.yml"
    text = COMPOSE.read_text(encoding="utf-8").replace("condition: service_healthy", "condition: x")
    broken.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    done = subprocess.run([*command, "vendor.compose-spec", str(broken)], capture_output=True)
    assert done.returncode == 1


def test_two_controllers_share_a_database_and_nothing_else() -> None:
    services = compose()["services"]
    assert set(services) == {"database", *CONTROLLERS}
    one, two = (services[name] for name in CONTROLLERS)
    for unshared in ("volumes", "ports"):
        assert not set(one[unshared]) & set(two[unshared])
    for service in (one, two):
        assert service["environment"]["SEATRIAL_HOME"] == "/var/lib/seatrial"
        assert service["volumes"][0].endswith(":/var/lib/seatrial")
        assert service["ports"][0].startswith("127.0.0.1:")
        assert service["depends_on"]["database"]["condition"] == "service_healthy"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "healthcheck" not in service  # the image's
    assert one["environment"] == two["environment"]
    assert "healthcheck" in services["database"]


def test_secrets_are_files_and_never_values() -> None:
    said = compose()
    given = {name: set(one["secrets"]) for name, one in said["services"].items()}
    assert given["database"] == {"database_password"}
    assert given["controller-1"] == {
        *("database_url", "admin_token", "signing_key", "google_credentials", "aws_config")
    }
    assert set(said["secrets"]) == set().union(*given.values())
    for secret in said["secrets"].values():
        assert secret["file"].startswith("./secrets/")
    for service in said["services"].values():
        environment = service["environment"]
        files = {name: path for name, path in environment.items() if name.endswith("_FILE")}
        for path in files.values():
            assert path.removeprefix("/run/secrets/") in service["secrets"]
        assert not [
            name
            for name, value in environment.items()
            if value and ("PASSWORD" in name or "TOKEN" in name) and name not in files
        ]
    for ignored in (".gitignore", ".dockerignore"):
        assert "secrets" in {line.strip("/") for line in (ROOT / ignored).read_text().split()}


def test_a_controller_can_sign_in_to_the_clouds_of_its_host() -> None:
    said = compose()
    for name in CONTROLLERS:
        environment = said["services"][name]["environment"]
        assert environment["AWS_CONFIG_FILE"] == "/run/secrets/aws_config"
        # taken from the shell where they are set
        for variable in (
            "AWS_PROFILE",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "HTTPS_PROXY",
            "NO_PROXY",
        ):
            assert environment[variable] is None
        # wheels of gigabytes are gathered on the volume: /tmp is memory
        assert environment["TMPDIR"] == environment["SEATRIAL_HOME"]
    made = (ROOT / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
    assert all(secret["file"].rpartition("/")[2] in made for secret in said["secrets"].values())


def test_every_variable_is_one_that_the_program_reads() -> None:
    ours = {f"SEATRIAL_{name.upper()}" for name in Settings.model_fields}
    for name in CONTROLLERS:
        environment = compose()["services"][name]["environment"]
        assert {one for one in environment if one.startswith("SEATRIAL_")} <= ours


def test_the_image_copies_what_the_wheel_is_made_of() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    copied = [shlex.split(rest) for rest in of("COPY")]
    sources = {name for words in copied if words[0] != "--from=build" for name in words[:-1]}
    assert all((ROOT / name).exists() for name in sources)
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    wanted = {*wheel["only-include"], project["project"]["readme"]}
    assert sources == wanted | {"pyproject.toml", "constraints.txt"}
    assert not sources & set((ROOT / ".dockerignore").read_text().split())
    (built,) = project["build-system"]["requires"]
    assert built in " ".join(of("RUN"))


def test_the_image_runs_as_nobody_of_the_host() -> None:
    user, group = of("USER")[0].split(":")
    assert int(user) >= 10_000
    assert int(group) >= 10_000
    assert [name for name, _ in instructions()].index("USER") < [
        name for name, _ in instructions()
    ].index("VOLUME")
    assert all(":" in rest.split()[0] for rest in of("FROM"))


def test_the_command_of_the_image_is_one_that_the_program_knows() -> None:
    entry, command = json.loads(of("ENTRYPOINT")[0]), json.loads(of("CMD")[0])
    assert entry == ["seatrial"]
    helped = subprocess.run(
        [sys.executable, "-m", "orchestrator", command[0], "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert helped.returncode == 0
    for option in (word for word in command if word.startswith("--")):
        assert option in helped.stdout
