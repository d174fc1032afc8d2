from __future__ import annotations

from datetime import UTC
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator import config
from orchestrator.adapters.clock import Ids, SystemClock, new_id
from orchestrator.config import Settings, SettingsError
from orchestrator.domain.caller_identity import Scope


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "HOME",
        "PROJECT",
        "DATABASE_URL",
        "DATABASE_URL_FILE",
        "URL",
        "TOKEN",
        "INGRESS_CIDR",
    ):
        monkeypatch.delenv(f"SEATRIAL_{name}", raising=False)
    for name in ("SEATRIAL_ADMIN_TOKEN_FILE", "SEATRIAL_SIGNING_KEY_FILE", "CI"):
        monkeypatch.delenv(name, raising=False)


def test_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = config.load()
    assert settings.home == tmp_path / "var"
    assert (settings.project, settings.url, settings.token, settings.ci) == (
        "seatrial",
        None,
        None,
        False,
    )
    assert settings.database_url is None


def test_what_is_set_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        "SEATRIAL_HOME": "elsewhere", "SEATRIAL_PROJECT": "proj-1",
        "SEATRIAL_DATABASE_URL": "postgresql://u:hidden@h/d", "SEATRIAL_URL": "https://h:1/",
        "SEATRIAL_TOKEN": "hidden", "SEATRIAL_INGRESS_CIDR": "10.0.0.0/8", "CI": "true",
    }  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = config.load()
    assert settings.home == tmp_path / "elsewhere"
    assert (settings.url, settings.ingress_cidr, settings.ci) == ("https://h:1", "10.0.0.0/8", True)
    assert settings.token is not None
    assert settings.token.get_secret_value() == "hidden"
    assert "hidden" not in repr(settings)


def test_the_database_may_be_named_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "url"
    monkeypatch.setenv("SEATRIAL_DATABASE_URL_FILE", str(path))
    with pytest.raises(config.SettingsError, match="SEATRIAL_DATABASE_URL_FILE cannot be read"):
        config.load()
    path.write_text("\n")
    with pytest.raises(config.SettingsError, match="is empty"):
        config.load()
    path.write_text("mysql://hidden@h/d")
    with pytest.raises(config.SettingsError, match="must begin with postgresql") as refused:
        config.load()
    assert "hidden" not in str(refused.value)
    path.write_text("postgresql://u:hidden@h/d\n")
    settings = config.load()
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == "postgresql://u:hidden@h/d"
    assert "hidden" not in repr(settings)
    monkeypatch.setenv("SEATRIAL_DATABASE_URL", "postgresql://h/d")
    with pytest.raises(config.SettingsError, match="both set"):
        config.load()


def test_a_budget_is_an_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEATRIAL_BUDGET_DAY_USD", "20.50")
    monkeypatch.setenv("SEATRIAL_BUDGET_MONTH_USD", "")
    settings = config.load()
    assert (settings.budget_day_usd, settings.budget_month_usd) == (Decimal("20.50"), None)
    for wrong in ("twenty", "-1", "NaN", "inf", "1" * 13):
        monkeypatch.setenv("SEATRIAL_BUDGET_DAY_USD", wrong)
        with pytest.raises(config.SettingsError) as refused:
            config.load()
        assert str(refused.value) == (
            'SEATRIAL_BUDGET_DAY_USD must be an amount such as "4.00", at least 0, of at most 12'
            f" digits, not {wrong!r}"
        )


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("SESSION_HOURS", ("x", "0", "721", "nan"), "a number, more than 0, at most 720"),
        ("CONTACT_TIMEOUT_S", ("-1", "inf"), "a number, more than 0"),
        ("HTTP_GUESSES_A_MINUTE", ("0", "x"), "a whole number, at least 1"),
        (
            "TRUSTED_PROXIES",
            ("proxy", "10.0.0.1/8", "*"),
            "addresses or networks, such as 10.0.0.0/24",
        ),
        ("HTTP_CONNECTIONS", ("1", "1.5", "many"), "a whole number, at least 2"),
        ("KEEP_LOGS_DAYS", ("-1", "36501"), "a whole number, at least 0, at most 36500"),
    ],
)
def test_a_number_s_error_has_what_is_allowed_and_what_was_given(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: tuple[str, ...], words: str
) -> None:
    for value in wrong:
        monkeypatch.setenv(f"SEATRIAL_{name}", value)
        with pytest.raises(config.SettingsError) as refused:
            config.load()
        assert str(refused.value) == f"SEATRIAL_{name} must be {words}, not {value!r}"


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SEATRIAL_URL", "SEATRIAL_PROJECT", "CI"):
        monkeypatch.setenv(name, "")
    settings = config.load()
    assert (settings.url, settings.project, settings.ci) == (None, "seatrial", False)


def test_one_address_is_a_network_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEATRIAL_INGRESS_CIDR", " 203.0.113.7")
    assert config.load().ingress_cidr == "203.0.113.7/32"


@pytest.mark.parametrize(
    ("value", "ci"), [("1", True), ("yes", True), ("0", False), ("False", False)]
)
def test_ci_is_set_by_any_word_but_no(
    monkeypatch: pytest.MonkeyPatch, value: str, ci: bool
) -> None:
    monkeypatch.setenv("CI", value)
    assert config.load().ci is ci


_CIDR = "SEATRIAL_INGRESS_CIDR"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SEATRIAL_PROJECT", "Big Name", "must be a lower-case letter"),
        ("SEATRIAL_URL", "h:1", "must look like https://host:port"),
        ("SEATRIAL_DATABASE_URL", "mysql://hidden@h/d", "must begin with postgresql://"),
        ("SEATRIAL_INGRESS_CIDR", "10.0.0.1/8", "must be one IPv4 network such as 203.0.113.7/32"),
        ("SEATRIAL_INGRESS_CIDR", "office", "must be one IPv4 network such as 203.0.113.7/32"),
        ("SEATRIAL_INGRESS_CIDR", "2001:db8::/64", "must be one IPv4 network"),
        ("SEATRIAL_INGRESS_CIDR", "0.0.0.0/0", "must be a /8 or narrower"),
        ("SEATRIAL_INGRESS_CIDR", "128.0.0.0/1", "must be a /8 or narrower"),
        ("SEATRIAL_TOKEN", "hidden\nhidden", "must be a token as it was printed"),
        ("SEATRIAL_TOKEN", "hiddén", "must be a token as it was printed"),
    ],
)
def test_a_bad_value_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(config.SettingsError) as caught:
        config.load()
    assert str(caught.value).startswith(f"{name} {words}")
    assert (repr(value) in str(caught.value)) == (
        name in ("SEATRIAL_PROJECT", "SEATRIAL_URL", _CIDR)
    )
    assert "\n" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_secrets_of_a_matrix_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "t")
    monkeypatch.delenv("NOBODY_SET_THIS", raising=False)
    assert config.load().secret("HF_TOKEN") == "t"
    assert config.load().secret("NOBODY_SET_THIS") is None


def test_who_can_be_reached_hands_out_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "t")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "k")
    monkeypatch.setenv("SEATRIAL_JOB_SECRETS", "HF_TOKEN, OTHER")
    settings = config.load()
    assert settings.job_secrets == ("HF_TOKEN", "OTHER")
    names = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "OTHER")
    assert [settings.job_secret(name) for name in names] == ["t", None, None]


def test_a_further_project_has_a_home_and_variables_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = {
        "SEATRIAL_HOME": str(tmp_path),
        "SEATRIAL_PROJECTS": "gpu-kernels, drivers",
        "SEATRIAL_BUDGET_DAY_USD": "9",
        "GPU_KERNELS__SEATRIAL_BUDGET_MONTH_USD": "50",
        "SEATRIAL_PUBLIC_URL": "https://seatrial.example",
        "SEATRIAL_JOB_SECRETS": "OURS",
        "OURS": "of the first",
        "GPU_KERNELS__OURS": "of the kernels",
        "SEATRIAL_OIDC_ROLES": "dev=run, ops=*:admin, gpu=gpu-kernels:gate, corp:x=drivers:read",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    first, kernels, drivers = config.load(), config.load("gpu-kernels"), config.load("drivers")
    assert (kernels.home, kernels.project) == (tmp_path / "projects/gpu-kernels", "gpu-kernels")
    assert (first.mark, kernels.mark) == ("", "gpu-kernels.")
    assert (first.budget_day_usd, kernels.budget_day_usd) == (9, None)
    assert (first.budget_month_usd, kernels.budget_month_usd) == (None, 50)
    assert kernels.public_url == first.public_url == "https://seatrial.example"
    assert (first.job_secrets, kernels.job_secrets) == (("OURS",), ())
    secrets = [one.secret("OURS") for one in (first, kernels, drivers)]
    assert secrets == ["of the first", "of the kernels", None]
    assert first.secret("GPU_KERNELS__OURS") is None
    assert first.oidc_roles == (("dev", Scope.RUN), ("ops", Scope.ADMIN))
    assert kernels.oidc_roles == (("ops", Scope.ADMIN), ("gpu", Scope.GATE))
    assert drivers.oidc_roles == (("ops", Scope.ADMIN), ("corp:x", Scope.READ))
    monkeypatch.setenv("SEATRIAL_PROJECT", "drivers")
    assert config.load() == drivers
    monkeypatch.setenv("DRIVERS__SEATRIAL_BUDGET_DAY_USD", "much")
    with pytest.raises(SettingsError, match="DRIVERS__SEATRIAL_BUDGET_DAY_USD must be an amount"):
        config.load()


@pytest.mark.parametrize("name", ["HOME", "PROJECT"])
def test_what_follows_from_a_further_projects_name_cannot_be_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setenv("SEATRIAL_HOME", str(tmp_path))
    monkeypatch.setenv("SEATRIAL_PROJECTS", "drivers,kernels")
    monkeypatch.setenv(f"OTHERS__SEATRIAL_{name}", "nobody asks")
    config.load()
    monkeypatch.setenv(f"KERNELS__SEATRIAL_{name}", "elsewhere")
    with pytest.raises(SettingsError, match=f"KERNELS__SEATRIAL_{name} cannot be set: .*projects/"):
        config.load()


def test_what_projects_share_is_decided_for_each_setting() -> None:
    shared = {
        *("projects", "url", "token", "ingress_cidr", "public_hosts", "trusted_proxies"),
        *("public_url", "contact_timeout_s", "gcp_project", "ci"),
    }
    prefixes = ("gcp_", "oidc_", "session_", "http_", "keep_")
    left = {name for name in Settings.model_fields if not name.startswith(prefixes)}
    assert left == (shared - {"gcp_project"}) | config.OWN


@pytest.mark.parametrize(
    "projects", ["Kernels", "a_b", "a-", "a--b", "1a", "a,a", "x" * 41, "a.b", "a/b", ".."]
)
def test_a_projects_name_is_a_folder_a_tag_and_a_prefix(
    monkeypatch: pytest.MonkeyPatch, projects: str
) -> None:
    monkeypatch.setenv("SEATRIAL_PROJECTS", projects)
    with pytest.raises(SettingsError, match="SEATRIAL_PROJECTS must be different names"):
        config.load()


def test_roles_are_of_projects_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEATRIAL_OIDC_ROLES", "dev=kernels:run")
    with pytest.raises(SettingsError, match="must name projects of SEATRIAL_PROJECTS, not kernels"):
        config.load()


def test_ids_grow_and_are_names() -> None:
    made = [new_id() for _ in range(2000)]
    assert made == sorted(set(made))
    assert all(len(each) == 26 and each.isalnum() and each == each.lower() for each in made)


def test_ids_of_another_process_sort_by_time() -> None:
    first = Ids()()
    SystemClock().sleep(0.005)
    assert first < Ids()()


def test_the_clock_is_aware() -> None:
    assert SystemClock().now().tzinfo is UTC
