"""One HTTP request to another server: no private addresses, bounded, never redirected."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import httpcore
from httpcore import SOCKET_OPTION, NetworkStream, SyncBackend

Address = IPv4Address | IPv6Address

_NAT64 = ip_network("64:ff9b::/96")
_SERVICES = frozenset(
    ip_address(one)
    for one in ("168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
)
"""Cloud metadata addresses, which serve keys; 169.254.169.254 is refused as link-local."""


REMEDY = ": add the channel with --allow-private if it is meant"


def refusal(address: str, *, allow_private: bool, remedy: str = REMEDY) -> str:
    """Return the reason why requests to an address are refused; empty if they are allowed.

    `remedy` ends the sentence about a private address.
    """
    for one in _reached(ip_address(address.partition("%")[0])):
        why = _refusal(one, allow_private=allow_private, remedy=remedy)
        if why:
            return f"{address} {why}"
    return ""


def _refusal(one: Address, *, allow_private: bool, remedy: str) -> str:
    if one.is_link_local or one in _SERVICES:
        return "is a link-local or cloud metadata address: requests to it are always refused"
    if one.is_multicast or one.is_unspecified or (one.is_reserved and not one.is_loopback):
        return "is no address of a receiver"
    if one.is_global or allow_private:
        return ""
    kind = "this computer's own" if one.is_loopback else "a private"
    return f"is {kind} address{remedy}"


def _reached(address: Address) -> Iterator[Address]:
    """Yield the addresses to check: an IPv4 address embedded in IPv6, or both ends of a tunnel."""
    if isinstance(address, IPv4Address):
        yield address
    elif address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address in _NAT64:
        yield IPv4Address(int(address) & 0xFFFFFFFF)
    else:
        yield address
        yield from (one for one in (address.sixtofour, *(address.teredo or ())) if one is not None)


DEADLINE_S = 10.0
"""Maximum seconds for one request, counted after the name is resolved."""
ANSWER_LIMIT_BYTES = 16 * 1024
Resolve = Callable[[str, int], list[str]]


class GuardedHttpError(Exception):
    """The request got no response; the text gives the reason for a person."""


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request; `GuardedHttp` sends it only if its host's addresses are allowed."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class GuardedResponse:
    """A response with the first bytes of its body."""

    status: int
    headers: Mapping[str, str]
    """Headers by lower-case name."""
    body: bytes


def addresses_of(host: str, port: int) -> list[str]:
    """Return every address of a name, as the system resolves it."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


@dataclass(frozen=True, slots=True)
class GuardedHttp:
    """Sends requests to checked addresses."""

    resolve: Resolve = addresses_of
    deadline_s: float = DEADLINE_S

    def send(self, request: Request, *, allow_private: bool) -> GuardedResponse:
        """Send the request once. Raises GuardedHttpError."""
        backend = _GuardedBackend(self.resolve, self.deadline_s, allow_private=allow_private)
        try:
            with (
                httpcore.ConnectionPool(network_backend=backend, max_connections=1) as pool,
                pool.stream(
                    request.method,
                    request.url,
                    headers=list(request.headers.items()),
                    content=request.body,
                    extensions={"timeout": {"pool": self.deadline_s}},
                ) as response,
            ):
                return GuardedResponse(response.status, _headers(response), _beginning(response))
        except httpcore.TimeoutException:
            raise GuardedHttpError(f"no answer within {self.deadline_s:g} s") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, ssl.SSLError, OSError) as error:
            raise GuardedHttpError(f"no answer: {error or type(error).__name__}") from None
        except (httpcore.UnsupportedProtocol, ValueError) as error:
            raise GuardedHttpError(f"the URL cannot be used: {error}") from None


def _headers(response: httpcore.Response) -> dict[str, str]:
    return {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
    }


def _beginning(response: httpcore.Response) -> bytes:
    parts: list[bytes] = []
    left = ANSWER_LIMIT_BYTES
    for part in response.iter_stream():
        parts.append(part[:left])
        left -= len(part)
        if left <= 0:
            break
    return b"".join(parts)


class _GuardedBackend(SyncBackend):
    """Resolves a name once, and connects to one of the checked addresses."""

    def __init__(self, resolve: Resolve, deadline_s: float, *, allow_private: bool) -> None:
        self._resolve = resolve
        self._deadline_s = deadline_s
        self._allow_private = allow_private

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> NetworkStream:
        """Connect to the host. Raises GuardedHttpError if any of its addresses is not allowed."""
        addresses = self._looked_at(host, port)
        end = time.monotonic() + self._deadline_s
        for number, address in enumerate(addresses, start=1):
            try:
                left = _left(end) / (len(addresses) - number + 1)
                stream = super().connect_tcp(address, port, left, local_address, socket_options)
                return _TimedStream(self._looked_at_again(stream), end)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if number == len(addresses):
                    raise
        raise httpcore.ConnectError(f"{host} has no address")

    def _looked_at(self, host: str, port: int) -> list[str]:
        """Return the addresses of the host. Raises GuardedHttpError if any is not allowed."""
        try:
            addresses = self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise GuardedHttpError(f"the name {host} cannot be resolved: {error}") from None
        for address in addresses:
            self._look_at(address)
        return addresses

    def _looked_at_again(self, stream: NetworkStream) -> NetworkStream:
        """Check the actual address of the connected peer."""
        peer = stream.get_extra_info("server_addr")
        try:
            self._look_at(str(peer[0]))
        except GuardedHttpError:
            stream.close()
            raise
        return stream

    def _look_at(self, address: str) -> None:
        why = refusal(address, allow_private=self._allow_private)
        if why:
            raise GuardedHttpError(why)


class _TimedStream(NetworkStream):
    """A stream with a deadline, however slowly the peer sends."""

    def __init__(self, stream: NetworkStream, end: float) -> None:
        self._stream = stream
        self._end = end

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read the available bytes."""
        return self._stream.read(max_bytes, _left(self._end))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all bytes."""
        self._stream.write(buffer, _left(self._end))

    def close(self) -> None:
        """Close it."""
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> NetworkStream:
        """Start TLS and verify the server's name."""
        left = _left(self._end)
        return _TimedStream(self._stream.start_tls(ssl_context, server_hostname, left), self._end)

    def get_extra_info(self, info: str) -> object:
        """Return the information of the wrapped stream."""
        return self._stream.get_extra_info(info)


def _left(end: float) -> float:
    """Return the seconds left until `end`. Raises ReadTimeout if none are left."""
    left = end - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout("the time is over")
    return left
