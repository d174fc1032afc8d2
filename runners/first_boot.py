"""First-boot configuration of a rented machine: its SSH key and when it ends."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from orchestrator.domain.machine import ConfigError, Login

USER_DATA_LIMIT_BYTES = 16 * 1024
"""Maximum bytes of user data that EC2 accepts, before its encoding."""
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


def cloud_config(login: Login, *, user: str, expires_at: datetime, templates: Path) -> str:
    """Return the user data for cloud-init: the login, the injected host key, and the guest timer.

    The same arguments give the same bytes, so that a repeated launch is the same request.

    Args:
        login: The lease's keys.
        user: The login user; created if the image lacks it.
        expires_at: Time at which the machine powers itself off, also after reboots.
        templates: The folder that holds ``cloud_init/``.

    Raises:
        ConfigError: The user's name is unusable, or the text is longer than clouds accept.
    """
    if not _USER.fullmatch(user):
        raise ConfigError(f"image.user: {user!r} is no user name; ubuntu and ec2-user are usual")
    text = _render(
        templates,
        "cloud_config.yaml.j2",
        user=user,
        public_key=login.public_key.strip(),
        host_private_key=login.host_private_key.strip(),
        host_public_key=login.host_public_key.strip(),
        **_deadline(expires_at),
    )
    size = len(text.encode())
    if size > USER_DATA_LIMIT_BYTES:
        raise ConfigError(
            f"the user data has {size} bytes, and clouds take {USER_DATA_LIMIT_BYTES}; shorten "
            f"{templates / 'cloud_init'}"
        )
    return text


def startup_script(*, expires_at: datetime, templates: Path) -> str:
    """Return a shell script with the guest timer, run at each boot of an image without cloud-init.

    Args:
        expires_at: Time at which the machine powers itself off.
        templates: The folder that holds ``cloud_init/``.

    Raises:
        ConfigError: The template cannot be used.
    """
    return _render(templates, "startup_script.sh.j2", **_deadline(expires_at))


def _deadline(expires_at: datetime) -> dict[str, object]:
    whole = expires_at.astimezone(UTC).replace(microsecond=0)
    # systemd reads this form in OnCalendar=.
    return {
        "deadline_epoch_s": int(whole.timestamp()),
        "deadline_calendar": f"{whole:%Y-%m-%d %H:%M:%S} UTC",
    }


def _render(templates: Path, name: str, **values: object) -> str:
    # Neither shell nor YAML is escaped as HTML; the templates quote by `tojson` where needed.
    environment = Environment(
        loader=FileSystemLoader(templates / "cloud_init"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    try:
        return environment.get_template(name).render(**values)
    except TemplateError as error:
        raise ConfigError(f"{templates / 'cloud_init' / name} cannot be used: {error}") from error
