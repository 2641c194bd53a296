"""Which network addresses only this machine reaches."""

import ipaddress


def is_loopback(host: str) -> bool:
    """A name that is not "localhost" may be anything."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
