"""A client of thumbcached, the per-user cache for profile images."""

from ._asyncio import AsyncClient
from ._client import Client
from ._commands import Fit, Format, Name
from ._errors import (
    BadImageError, BusyError, DeniedError, InvalidRequestError, NoSpaceError, NotLoggedInError, OriginError,
    OriginTimeoutError, RequestCancelledError, ShuttingDownError, StoreError, ThumbcacheError, TooLargeError,
    UnauthorizedError, UnavailableError,
)
from ._values import UNCHANGED, Event, Explanation, Image, ImageStatus, Receipt, Unchanged, Upstream, UserStatus

__all__ = [
    "AsyncClient", "BadImageError", "BusyError", "Client", "DeniedError", "Event", "Explanation", "Fit", "Format",
    "Image", "ImageStatus", "InvalidRequestError", "Name", "NoSpaceError", "NotLoggedInError", "OriginError",
    "OriginTimeoutError", "Receipt", "RequestCancelledError", "ShuttingDownError", "StoreError", "ThumbcacheError",
    "TooLargeError", "UNCHANGED", "UnauthorizedError", "UnavailableError", "Unchanged", "Upstream",
    "UserStatus",
]
