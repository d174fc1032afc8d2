"""What Google's guest agent does at boot: accounts, host keys, the startup script."""

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
    sys.exit({"accounts": accounts, "startup": startup}[sys.argv[1]]())
