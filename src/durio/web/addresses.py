"""Addresses: who sends a request, which hosts we answer to, which proxies we trust."""

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from durio.host.signals import host_name
from durio.model.errors import InvalidOption
from durio.web.problems import Refusal

HOST = re.compile(
    r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?"
)
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
ANY = "*"
ANY_ADDRESS = "<address>"  # any address in place of a name
EVERY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - what a server listens on
HTTP_PORT = 80
SCHEMES = ("http", "https")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Origin(NamedTuple):
    """Where the browser believes to be, and where the request comes from."""

    scheme: str
    host: str  # with the port, in small letters
    address: str  # of the browser

    @property
    def text(self) -> str:
        """The value that a browser gives as `Origin`."""
        return f"{self.scheme}://{self.host}"


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches a server that listens there."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def header_values(scope: Mapping[str, Any], name: bytes) -> list[str]:
    """Return all values of a header; the name is in small letters."""
    return [
        value.decode("latin-1")
        for key, value in scope["headers"]
        if key.lower() == name
    ]


class Proxies:
    """The proxies whose X-Forwarded-* headers count."""

    def __init__(self, trusted: Iterable[str]) -> None:
        self.networks = [network_of(each) for each in trusted]

    def trusts(self, address: str) -> bool:
        try:
            ip = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(ip.version == net.version and ip in net for net in self.networks)

    def origin(self, scope: Mapping[str, Any]) -> Origin:
        """Return the origin of a request; refuse one with no host or several."""
        client: Sequence[Any] | None = scope.get("client")
        address = plain_address(str(client[0])) if client else ""
        hosts = header_values(scope, b"host")
        if len(hosts) != 1 or HOST.fullmatch(hosts[0]) is None:
            raise Refusal(400, "invalid_host", "the request has no valid Host header")
        scheme, host = str(scope.get("scheme", "http")), hosts[0].lower()
        if not self.trusts(address):
            return Origin(scheme, host, address)
        forwarded_scheme = last_of(scope, b"x-forwarded-proto")
        forwarded_host = last_of(scope, b"x-forwarded-host")
        if forwarded_scheme in SCHEMES:
            scheme = forwarded_scheme
        if HOST.fullmatch(forwarded_host):
            host = forwarded_host.lower()
        return Origin(scheme, host, self.browser_address(scope, address))

    def browser_address(self, scope: Mapping[str, Any], address: str) -> str:
        """Return the last address that no trusted proxy has added."""
        hops = [
            hop.strip()
            for value in header_values(scope, b"x-forwarded-for")
            for hop in value.split(",")
        ]
        for hop in reversed(hops):
            if not is_address(hop):
                return address
            address = plain_address(hop)
            if not self.trusts(address):
                return address
        return address


def plain_address(text: str) -> str:
    """Return an address; that of IPv4 on a socket of IPv6 as IPv4."""
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return text
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def last_of(scope: Mapping[str, Any], name: bytes) -> str:
    """Return the value that the nearest proxy has added; empty if there is none."""
    values = header_values(scope, name)
    return values[-1].rpartition(",")[2].strip() if values else ""


def network_of(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise InvalidOption(
            f"a trusted proxy cannot be {text!r:.80}",
            cure="Give an address or a network, such as 10.0.0.0/8.",
        ) from None


def is_allowed(host: str, allowed: Iterable[str]) -> bool:
    """Whether a Host header is one of these: `jobs.example.com`, `*.example.com`, `*`."""
    found = HOST.fullmatch(host)
    if found is None:
        return False
    name = found["name"]
    return any(
        each in (ANY, host, name)
        or (each.startswith("*.") and name.endswith(each[1:]))
        or (each == ANY_ADDRESS and is_address(name))
        for each in (one.lower() for one in allowed)
    )


def hosts_at(address: str, port: int) -> tuple[str, ...]:
    """Return the hosts that a server at this address answers to, if none are named.

    A server on every address answers to all addresses and to this machine's name: another
    name may be that of a page that wants to reach us (DNS rebinding).
    """
    if is_loopback(address):
        return dev_hosts(port)
    if address.strip("[]") in EVERY_ADDRESS:
        return (ANY_ADDRESS, *LOOPBACK_NAMES, host_name())
    return (f"[{address}]" if ":" in address else address,)


def dev_hosts(port: int) -> tuple[str, ...]:
    """Return the hosts that a dashboard without login answers to."""
    end = "" if port == HTTP_PORT else f":{port}"  # a browser leaves it out
    return tuple(f"{name}{end}" for name in LOOPBACK_NAMES)
