"""The forward proxy: what stands in a child's environment, and whom a tunnel of it belongs to."""

from __future__ import annotations

from typing import Final, NamedTuple

from pytest_fanout.meter.gateway.tickets import Ticket

_PROXY_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
_DIRECT_VARIABLES: Final = ("NO_PROXY", "no_proxy")
USER: Final = "fanout"


class Tunnel(NamedTuple):
    """A connection that a client has opened to one host through the proxy."""

    origin: str  # scheme://host[:port]
    ticket: Ticket
    depth: int


def proxy_variables(url: str, token: str) -> dict[str, str]:
    """What sends the HTTP of a child through the gateway: all of it but what goes to the gateway itself.

    Loopback is not left out: a tool server there is a tool like any other. Whatever ``NO_PROXY`` held is dropped,
    because what goes by it is not seen; the gateway heeds it on its own way out.
    """
    address = url.removeprefix("http://")
    # User and password: some clients send no credentials that lack either.
    found = dict.fromkeys(_PROXY_VARIABLES, f"http://{USER}:{token}@{address}")
    found.update(dict.fromkeys(_DIRECT_VARIABLES, address))
    found["NODE_USE_ENV_PROXY"] = "1"  # Node from 22.21 and 24.5 on
    return found


def origin_of(scheme: str, host: str, port: int) -> str:
    """``scheme://host``, with the port where it is not the scheme's own."""
    name = f"[{host}]" if ":" in host else host
    default = 443 if scheme == "https" else 80
    return f"{scheme}://{name}" if port == default else f"{scheme}://{name}:{port}"


def split_authority(text: str) -> tuple[str, int] | None:
    """Host and port of ``host:port``, as CONNECT names them; None for anything else."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    valid = bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 65536
    return (host.lower(), int(port)) if valid else None
