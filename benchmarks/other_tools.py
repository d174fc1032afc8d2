"""The work of `benchmarks.side_by_side` by a loop over paramiko, pyinfra, Ansible and ReFrame.

Each ships the payload into a new folder of every host, runs a command there, and brings the output
back, on all hosts at the same time. Each raises where a host's output is missing.

``python -m benchmarks.other_tools PAYLOAD COMMAND (PORT USER KEY HOST_KEY FOLDER)...`` is the loop.
"""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.ssh_hosts import LOOPBACK, SshHost

Run = Callable[[Sequence[SshHost], Path, str, Path], None]


@dataclass(frozen=True, slots=True)
class Tool:
    """Another tool: its program, and a function that does the work with it."""

    program: str
    run: Run


def loop(hosts: Sequence[SshHost], payload: Path, command: str, _tools: Path) -> None:
    """Do the work with paramiko, with a thread for each host."""
    words = [sys.executable, "-m", "benchmarks.other_tools", str(payload), command]
    for host in hosts:
        key = host.host_key().split()[1]
        words += [str(host.port), host.user, str(_key(host)), key, _folder(host)]
    subprocess.run(words, check=True)


def _folder(host: SshHost) -> str:
    """Return a new folder on the host, which the other hosts of this computer do not use."""
    return f"{host.home}/{uuid.uuid4().hex}"


def _key(host: SshHost) -> Path:
    return host.keys_dir / f"{host.name}_key"


def _archive(payload: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(payload, arcname="payload")
    return buffer.getvalue()


def _script(folder: str, command: str) -> str:
    """Return shell commands that unpack `folder`.tar and run the command in it."""
    return (
        f"mkdir {folder} && tar -xf {folder}.tar -C {folder} && cd {folder}/payload && "
        f"{command} > ../out.txt 2>&1"
    )


def _by_paramiko(
    data: bytes, command: str, port: str, user: str, key: str, host_key: str, folder: str
) -> bytes:
    import paramiko  # noqa: PLC0415 - the other functions do without

    with paramiko.SSHClient() as client:
        known = paramiko.Ed25519Key(data=base64.b64decode(host_key))
        client.get_host_keys().add(f"[{LOOPBACK}]:{port}", "ssh-ed25519", known)
        client.connect(LOOPBACK, int(port), user, key_filename=key, look_for_keys=False)
        stdin, stdout, _ = client.exec_command(f"cat > {folder}.tar")
        stdin.channel.sendall(data)
        stdin.channel.shutdown_write()
        assert stdout.channel.recv_exit_status() == 0
        script = _script(folder, command)
        done = f"{script}; cat ../out.txt; cd; rm -rf {folder} {folder}.tar"
        output: bytes = client.exec_command(done)[1].read()
        return output


def _main(payload: str, command: str, *ways: str) -> None:
    data = _archive(Path(payload))
    hosts = [ways[at : at + 5] for at in range(0, len(ways), 5)]
    with ThreadPoolExecutor(len(hosts)) as pool:
        outputs = list(pool.map(lambda way: _by_paramiko(data, command, *way), hosts))
    assert all(outputs), "a host had no output"


def _ssh_config(hosts: Sequence[SshHost], folder: Path) -> Path:
    """Write a configuration of OpenSSH with every host's name and key; return its path."""
    known = "".join(f"[{LOOPBACK}]:{host.port} {host.host_key()}\n" for host in hosts)
    (folder / "known_hosts").write_text(known)
    rows = (
        f"Host {host.name}\n  HostName {LOOPBACK}\n  Port {host.port}\n  User {host.user}\n"
        f"  IdentityFile {_key(host)}\n  IdentitiesOnly yes\n  StrictHostKeyChecking yes\n"
        f"  UserKnownHostsFile {folder / 'known_hosts'}\n"
        for host in hosts
    )
    (folder / "ssh_config").write_text("".join(rows))
    return folder / "ssh_config"


def _run(words: Sequence[object], folder: Path, hosts: Sequence[SshHost]) -> None:
    """Run a tool in its own folder, and check that the output of every host came back."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
    done = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    came = [path for path in folder.rglob("*out.txt") if path.stat().st_size]
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert len(came) >= len(hosts), (came, done.stdout, done.stderr)


PYINFRA = """
from pyinfra import host
from pyinfra.operations import files, server
folder = host.data.folder
files.put(src={archive!r}, dest=folder + ".tar")
server.shell(commands=[{script!r}.replace("FOLDER", folder)])
files.get(src=folder + "/out.txt", dest=host.name + "-out.txt")
server.shell(commands=["rm -rf " + folder + " " + folder + ".tar"])
"""


def _pyinfra(hosts: Sequence[SshHost], payload: Path, command: str, tools: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = str(_ssh_config(hosts, folder))
        (folder / "payload.tar").write_bytes(_archive(payload))
        rows = [(one.name, {"ssh_config_file": config, "folder": _folder(one)}) for one in hosts]
        (folder / "inventory.py").write_text(f"hosts = {rows!r}\n")
        archive = str(folder / "payload.tar")
        deploy = PYINFRA.format(archive=archive, script=_script("FOLDER", command))
        (folder / "deploy.py").write_text(deploy)
        _run([tools / "pyinfra", "-y", "inventory.py", "deploy.py"], folder, hosts)


ANSIBLE = """
- hosts: all
  gather_facts: false
  tasks:
    - copy: {{src: {archive}, dest: "{folder}.tar"}}
    - shell: {script}
    - fetch: {{src: "{folder}/out.txt", dest: "{{{{ inventory_hostname }}}}-out.txt", flat: true}}
    - shell: "rm -rf {folder} {folder}.tar"
"""


def _ansible(hosts: Sequence[SshHost], payload: Path, command: str, tools: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, place = Path(name), "{{ folder }}"
        config = _ssh_config(hosts, folder)
        (folder / "payload.tar").write_bytes(_archive(payload))
        python = "ansible_python_interpreter=/usr/bin/python3"
        common = f"ansible_ssh_common_args='-F {config}'"
        rows = (f"{one.name} folder={_folder(one)} {python} {common}\n" for one in hosts)
        (folder / "inventory").write_text("".join(rows))
        script = json.dumps(_script(place, command))
        play = ANSIBLE.format(archive=folder / "payload.tar", folder=place, script=script)
        (folder / "play.yml").write_text(play)
        words = [tools / "ansible-playbook", "-f", len(hosts), "-i", "inventory", "play.yml"]
        _run(words, folder, hosts)


REFRAME = """
import reframe as rfm
import reframe.utility.sanity as sn

@rfm.simple_test
class Job(rfm.RunOnlyRegressionTest):
    valid_systems = ["hosts"]
    valid_prog_environs = ["builtin"]
    sourcesdir = {payload!r}
    executable = {program!r}
    executable_opts = [{arguments!r}, ">", "out.txt", "2>&1"]

    @sanity_function
    def came(self):
        return sn.assert_found(".", "out.txt")
"""


def _reframe(hosts: Sequence[SshHost], payload: Path, command: str, tools: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = _ssh_config(hosts, folder)
        partitions = [
            {
                "name": host.name,
                "scheduler": "ssh",
                "launcher": "local",
                "environs": ["builtin"],
                "access": [f"-F {config}"],
                "sched_options": {"ssh_hosts": [host.name]},
            }
            for host in hosts
        ]
        systems = [{"name": "hosts", "hostnames": [".*"], "partitions": partitions}]
        environments = [{"name": "builtin", "cc": "cc"}]
        said = {"systems": systems, "environments": environments}
        (folder / "settings.py").write_text(f"site_configuration = {said!r}\n")
        program, _, arguments = command.partition(" ")
        test = REFRAME.format(payload=str(payload), program=program, arguments=arguments)
        (folder / "job.py").write_text(test)
        words = [tools / "reframe", "-C", "settings.py", "-c", "job.py", "--keep-stage-files", "-r"]
        _run(words, folder, hosts)


OTHERS = {
    "pyinfra": Tool("pyinfra", _pyinfra),
    "Ansible": Tool("ansible-playbook", _ansible),
    "ReFrame": Tool("reframe", _reframe),
}
"""The other tools, by their names in the table."""

if __name__ == "__main__":
    _main(*sys.argv[1:])
