from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import ClassVar

import redis


class ThumbcacheError(Exception):
    """An error reply of the daemon, or a failure to get a reply; the text states the cause and the valid values."""

    #: The first word of the error reply; empty if there is no reply.
    code: ClassVar[str] = ""


class UnavailableError(ThumbcacheError):
    """The daemon cannot be reached, the connection was lost, or no reply arrived in time. Repeating is safe."""


class InvalidRequestError(ThumbcacheError):
    """Invalid argument, or an option that this daemon does not have."""

    code = "ERR"


class NotLoggedInError(ThumbcacheError):
    """The user is not logged in."""

    code = "NOLOGIN"


class RequestCancelledError(ThumbcacheError):
    """The user was logged out or purged while the request waited."""

    code = "CANCELLED"


class DeniedError(ThumbcacheError):
    """Not permitted: another uid, or a URL that the origin does not allow."""

    code = "DENIED"


class OriginTimeoutError(ThumbcacheError):
    """The origin did not respond in time, and no stale image is held."""

    code = "TIMEOUT"


class OriginError(ThumbcacheError):
    """The origin failed or denies the image, and no stale image is held."""

    code = "ORIGIN"


class UnauthorizedError(ThumbcacheError):
    """The origin refused the access token: log in with new tokens."""

    code = "UNAUTHORIZED"


class BadImageError(ThumbcacheError):
    """Not an image of a known format, or its sides exceed the limit."""

    code = "BADIMAGE"


class TooLargeError(ThumbcacheError):
    """The image or the request exceeds the limit."""

    code = "TOOLARGE"


class BusyError(ThumbcacheError):
    """A limit of the daemon is reached: retry later."""

    code = "BUSY"


class NoSpaceError(ThumbcacheError):
    """The store is full."""

    code = "NOSPACE"


class StoreError(ThumbcacheError):
    """The store could not write, or not make a logout or purge durable; the latter guarantees nothing yet."""

    code = "IOERR"


class ShuttingDownError(ThumbcacheError):
    """The daemon is stopping, and the request has no effect: repeat it."""

    code = "SHUTTINGDOWN"


_BY_CODE = {error.code: error for error in ThumbcacheError.__subclasses__() if error.code}


def from_reply(error: Exception) -> ThumbcacheError:
    """Converts an error reply. redis-py removes the code ERR and no other."""
    code, _, message = str(error).partition(" ")
    return _BY_CODE[code](message) if code in _BY_CODE else InvalidRequestError(str(error))


@contextlib.contextmanager
def converted() -> Iterator[None]:
    """Converts errors of redis-py to those of this package."""
    try:
        yield
    except redis.ResponseError as error:
        raise from_reply(error) from error
    except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
        raise UnavailableError(str(error)) from error
