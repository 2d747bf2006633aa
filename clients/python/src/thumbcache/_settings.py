from __future__ import annotations

import os
from typing import Any

import redis

_OF_MACHINE = "/run/thumbcached/thumbcached.sock"


def socket_path() -> str:
    """Returns THUMBCACHED_SOCKET; or else the socket of the user's own daemon, if there is one; or else the machine's.
    """
    if named := os.environ.get("THUMBCACHED_SOCKET"):
        return named
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    own = f"{runtime}/thumbcached/thumbcached.sock" if runtime.startswith("/") else None
    if own and os.getuid() != 0 and os.path.exists(own):
        return own
    return own if own and not os.path.exists(_OF_MACHINE) else _OF_MACHINE


def connection(timeout: float | None) -> dict[str, Any]:
    """Arguments of a connection. Replies have the form of RESP2, which is the only one before redis-py 5."""
    protocol: dict[str, Any] = {"protocol": 2} if redis.VERSION >= (5,) else {}
    return {"socket_timeout": timeout, "encoding_errors": "surrogateescape", **protocol}
