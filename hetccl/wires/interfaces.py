"""Which of this machine's addresses other ranks are told, by the rules of NCCL_SOCKET_IFNAME."""

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hetccl.errors import ResourceError

__all__ = ["Interface", "choose", "interfaces"]

SIOCGIFADDR = 0x8915
UNWANTED = ("lo", "docker")
"""Prefixes of interfaces that are only told where there are no others, as NCCL does."""


@dataclass(frozen=True)
class Interface:
    """A network interface with its addresses, IPv4 first; link-local ones are left out."""

    name: str
    addresses: tuple[str, ...]


def interfaces() -> list[Interface]:
    """The machine's interfaces that have an address, in the kernel's order."""
    found = []
    for _, name in socket.if_nameindex():
        addresses = _ipv4(name) + _ipv6(name)
        if addresses:
            found.append(Interface(name, tuple(addresses)))
    return found


def _ipv4(name: str) -> list[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:  # it has none
            return []
    return [socket.inet_ntoa(answer[20:24])]


def _ipv6(name: str) -> list[str]:
    table = Path("/proc/net/if_inet6")
    rows = (line.split() for line in table.read_text().splitlines()) if table.exists() else ()
    addresses = (ipaddress.IPv6Address(int(row[0], 16)) for row in rows if row[5] == name)
    return [str(address) for address in addresses if not address.is_link_local]


def choose(rule: str, present: Sequence[Interface]) -> list[Interface]:
    """The interfaces that a rule selects, in the rule's order of preference.

    `eth,ib0`: those whose names begin so. `=eth0`: that very one. `^docker`: all but those; `^=eth0` likewise.
    Empty: all but lo and docker, or those where nothing else is there. Raises ResourceError where none is selected.
    """
    if not rule:
        wanted = [each for each in present if not each.name.startswith(UNWANTED)]
        return wanted or list(present)
    excluded = rule.startswith("^")
    names = rule.removeprefix("^")
    exact = names.startswith("=")
    patterns = [pattern for pattern in names.removeprefix("=").split(",") if pattern]

    def matches(pattern: str, name: str) -> bool:
        return name == pattern if exact else name.startswith(pattern)

    if excluded:
        selected = [each for each in present if not any(matches(pattern, each.name) for pattern in patterns)]
    else:
        selected = [each for pattern in patterns for each in present if matches(pattern, each.name)]
    if not selected:
        there = ", ".join(each.name for each in present) or "none"
        raise ResourceError(
            f"NCCL_SOCKET_IFNAME is {rule!r}, which selects none of this host's network interfaces ({there})"
        )
    return list(dict.fromkeys(selected))
