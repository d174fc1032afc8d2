"""What Google's guest agent does at boot: accounts, host keys, the startup script."""

import configparser
import json
import os
import pathlib
import pwd
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime

BASE = "http://169.254.169.254/computeMetadata/v1/instance/"
HOST_KEYS_AFTER_S = 3
HOST_KEYS_MADE = pathlib.Path("/var/lib/google-host-keys-made")
SETTINGS = pathlib.Path("/etc/default/instance_configs.cfg")
SCRIPT = pathlib.Path("/run/lab/startup-script")


def metadata(name, body=None):
    request = urllib.request.Request(BASE + name, data=body, method="PUT" if body else "GET")
    request.add_header("Metadata-Flavor", "Google")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return ""
        raise


def attribute(name):
    return metadata("attributes/" + name)


def true(name):
    return attribute(name).strip().lower() in ("true", "1", "y", "yes")


def keys_by_user():
    if true("enable-oslogin"):
        return {}
    users = {}
    for line in attribute("ssh-keys").splitlines():
        user, colon, key = line.strip().partition(":")
        if colon and not expired(key):
            users.setdefault(user, []).append(key)
    return users


def expired(key):
    _, marked, terms = key.partition(" google-ssh ")
    if not marked:
        return False
    until = datetime.fromisoformat(json.loads(terms)["expireOn"].replace("+0000", "+00:00"))
    return until < datetime.now(UTC)


def accounts():
    for user, keys in keys_by_user().items():
        try:
            account = pwd.getpwnam(user)
        except KeyError:
            subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", user], check=True)
            account = pwd.getpwnam(user)
        rule = pathlib.Path("/etc/sudoers.d/google-" + user)
        rule.write_text(user + " ALL=(ALL:ALL) NOPASSWD:ALL\n")
        rule.chmod(0o440)
        folder = pathlib.Path(account.pw_dir, ".ssh")
        folder.mkdir(mode=0o700, exist_ok=True)
        listed = folder / "authorized_keys"
        listed.write_text("".join(key + "\n" for key in keys))
        listed.chmod(0o600)
        for path in (folder, listed):
            os.chown(path, account.pw_uid, account.pw_gid)
    if true("enable-guest-attributes"):
        publish()


def publish():
    for path in pathlib.Path("/etc/ssh").glob("ssh_host_*_key.pub"):
        kind, key = path.read_text().split()[:2]
        metadata("guest-attributes/hostkeys/" + kind, key.encode())


def host_keys():
    """At the first boot the agent makes host keys of its own, after others were published.

    github.com/GoogleCloudPlatform/guest-agent, instance_setup.go: `set_host_keys` is on by default.
    """
    settings = configparser.ConfigParser(strict=False)
    settings.read(SETTINGS)
    wanted = settings.getboolean("InstanceSetup", "set_host_keys", fallback=True)
    if not wanted or HOST_KEYS_MADE.exists():
        return
    time.sleep(HOST_KEYS_AFTER_S)
    HOST_KEYS_MADE.touch()
    key = pathlib.Path("/etc/ssh/ssh_host_ed25519_key")
    made = key.with_name("made")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", made], check=True)
    os.replace(made.with_suffix(".pub"), key.with_suffix(".pub"))
    os.replace(made, key)
    subprocess.run(["pkill", "-HUP", "-o", "-x", "sshd"], check=False)
    if true("enable-guest-attributes"):
        publish()


def startup():
    text = attribute("startup-script")
    if not text:
        return 0
    SCRIPT.write_text(text if text.startswith("#!") else "#!/bin/bash\n" + text)
    SCRIPT.chmod(0o700)
    print("startup-script: begins", flush=True)
    started = time.monotonic()
    code = subprocess.run([str(SCRIPT)], cwd="/").returncode
    print(f"startup-script: exit status {code}, {time.monotonic() - started:.1f} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit({"accounts": accounts, "host_keys": host_keys, "startup": startup}[sys.argv[1]]())
