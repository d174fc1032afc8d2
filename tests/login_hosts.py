"""SSH hosts with an /etc and a /var/lib of their own: logins and sudo as on rented machines.

Everything is in mount namespaces, so that no account, no sudoers line and no work folder of a test
is ever seen outside its host.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.ssh_hosts import _ISOLATED, PRIVILEGE_FOLDER, SshHost, _program, can_isolate

LOGIN = "somebody"

_SETUP = """
set -e
cp -a /etc/. "$1/etc"
cp "$1/authorized_keys" "$1/etc/ssh/authorized_keys"
mount --bind "$1/etc" /etc
mount -t tmpfs none /var/lib
mkdir -p "$1/logins" /home
mount --bind "$1/logins" /home
chmod 755 /home
useradd -m -s /bin/sh -p '*' somebody
. "$1/setup.sh"
shift
exec "$@"
"""


def login_host_missing() -> str | None:
    """Why no such host can be made here, or None."""
    if not can_isolate():
        return "needs root and namespaces"
    for name in ("sudo", "useradd"):
        if _program(name) is None:
            return f"{name} is not installed (Debian: sudo, passwd)"
    return None


class LoginHost(SshHost):
    """A host that is entered as ``somebody``, or as root with the home that root has."""

    def __init__(self, root: Path, *, user: str = LOGIN, setup: str = "", **options: str) -> None:
        """Prepare the host; `setup` is more shell script, run as its root before sshd starts."""
        super().__init__(root, **options)
        self.user = user
        (self.folder / "etc").mkdir()
        (self.folder / "setup.sh").write_text(setup)
        lines = (self.folder / "sshd_config").read_text().splitlines()
        own = ('SetEnv "HOME=', "AuthorizedKeysFile")
        kept = ["AuthorizedKeysFile /etc/ssh/authorized_keys"]
        kept += [line for line in lines if not line.startswith(own)]
        (self.folder / "sshd_config").write_text("\n".join(kept) + "\n")

    def start(self) -> LoginHost:
        """Start the host."""
        PRIVILEGE_FOLDER.mkdir(mode=0o755, exist_ok=True)
        program = _program("sshd")
        config, log = self.folder / "sshd_config", self.folder / "sshd.log"
        command = [program, "-D", "-f", str(config), "-E", str(log)]
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        self._process = subprocess.Popen(
            [*_ISOLATED, "/bin/sh", "-c", _SETUP, "sh", str(self.folder), *command],
            start_new_session=True,
            **quiet,
        )
        self._wait_for_banner()
        return self

    def inside(self, script: str) -> str:
        """Run a script as the host's root, seeing its files; returns what it prints."""
        sshd = next(pid for pid in self.processes() if _is_sshd(pid))
        command = ["nsenter", "-t", str(sshd), "-m", "-p", "/bin/sh", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


def _is_sshd(pid: int) -> bool:
    """False also for a process that ended since it was listed."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "sshd"
    except (FileNotFoundError, ProcessLookupError):
        return False


NOPASSWD = "echo 'somebody ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/90-somebody\n"
"""What cloud-init does for the login of a rented machine."""
