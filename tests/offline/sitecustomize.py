"""Python without a network: what every test, and every Python that a test starts, runs in.

The folder is on PYTHONPATH of the tests, so that interpreters load this file when they start.
Whoever looks up or connects to anything but this machine gets an OSError that says so.
"""

import ipaddress
import sys

OFFLINE = True
LOOKED_UP = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
SENT = {"socket.connect", "socket.sendto", "socket.sendmsg"}


def _is_here(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode(errors="replace")
    if host in (None, "", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _refuse(event: str, arguments: tuple) -> None:
    if event in LOOKED_UP:
        host = arguments[0]
    elif event in SENT and isinstance(arguments[1], tuple):  # others are files, or known peers
        host = arguments[1][0]
    else:
        return
    if isinstance(host, int):  # netlink: which interfaces there are
        return
    import socket

    if not _is_here(host) and host != socket.gethostname():
        raise OSError(f"no network in tests: {event} of {host}")


sys.addaudithook(_refuse)
