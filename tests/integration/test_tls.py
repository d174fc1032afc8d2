"""TLS of the port: usable files, unusable ones, a renewal, and a controller that speaks it."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orchestrator.bootstrap.http_server import TlsFiles
from orchestrator.cli.errors import RefusedError
from tests.e2e.home import a_home, serving
from tests.integration.test_bounded_http import LIMITS, listening
from tests.integration.test_deployment_files import health_check


def certificate(folder: Path, *, password: bytes | None = None) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "controller")])
    now = dt.datetime.now(dt.UTC)
    local = x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([local]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    hidden = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    (folder / "tls.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
    )
    return folder / "tls.crt", folder / "tls.key"


def test_files_that_cannot_be_used_are_a_sentence(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path / "one")
    _, other = certificate(tmp_path / "other")
    _, locked = certificate(tmp_path / "locked", password=b"secret")
    with pytest.raises(RefusedError, match=r"gone\.crt cannot be read: No such file"):
        TlsFiles(tmp_path / "gone.crt", key)
    with pytest.raises(RefusedError, match="do not belong together"):
        TlsFiles(cert, other)
    with pytest.raises(RefusedError, match="must be PEM files"):
        TlsFiles(cert, None)
    with pytest.raises(RefusedError, match="the private key has a password"):
        TlsFiles(tmp_path / "locked" / "tls.crt", locked)


def test_one_file_may_hold_both(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path / "one")
    both = tmp_path / "both.pem"
    both.write_bytes(cert.read_bytes() + key.read_bytes())
    assert TlsFiles(both, None).context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_renewal_is_served_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = certificate(tmp_path / "one")
    new_cert, new_key = certificate(tmp_path / "two")
    old, new = cert.read_text(), new_cert.read_text()
    files = TlsFiles(cert, key)
    caplog.set_level("INFO", logger="orchestrator.bootstrap.http_server")
    with listening(LIMITS, files.context) as port:

        def served() -> str:
            files.renew()
            return ssl.get_server_certificate(("127.0.0.1", port), timeout=60)

        assert served() == old
        assert caplog.text == ""
        new_cert.replace(cert)
        assert served() == old
        assert "the earlier certificate stays in use" in caplog.text
        new_key.replace(key)
        assert served() == new
        assert "is in use from now on" in caplog.text
        caplog.clear()
        assert served() == new
        assert caplog.text == ""


def test_a_controller_speaks_https_to_the_command_line_and_to_browsers(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path / "tls")
    with (
        a_home(tmp_path / "home") as home,
        serving(home, "--tls-cert", str(cert), "--tls-key", str(key)),
    ):
        url = home.url.replace("http:", "https:")
        assert f"Seatrial answers at {url}" in (home.path / "served.log").read_text()
        token = (home.path / "token").read_text()
        home.environment |= {"SEATRIAL_URL": url, "SEATRIAL_TOKEN": token}
        refused = subprocess.run(
            home.command("runs"), env=home.environment, capture_output=True, text=True
        )
        assert refused.returncode == 2
        assert "certificate verify failed" in refused.stderr
        assert "Set SSL_CERT_FILE" in refused.stderr
        home.environment["SSL_CERT_FILE"] = str(cert)
        assert home.json("runs") == []
        trusted = ssl.create_default_context(cafile=str(cert))
        assert subprocess.run(health_check(), env=home.environment).returncode == 0
        with httpx.Client(base_url=url, verify=trusted, timeout=60) as client:
            signed_in = client.post("/login", data={"token": token}, headers={"Origin": url})
            cookie = signed_in.headers["set-cookie"]
            assert "secure" in cookie.lower()
        with pytest.raises(httpx.TransportError), httpx.Client(timeout=60) as plain:
            plain.get(home.url)
    stopped = subprocess.run(health_check(), env=home.environment, capture_output=True)
    assert stopped.returncode != 0
