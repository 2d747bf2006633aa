from __future__ import annotations

import dataclasses
import enum
from typing import Any, Literal, TypeVar

_T = TypeVar("_T", bound="_Map")


@dataclasses.dataclass(frozen=True)
class _Map:
    @classmethod
    def read(cls: type[_T], reply: list[Any]) -> _T:
        """Reads a map, which RESP2 sends as alternating keys and values. Ignores unknown keys."""
        values = {key.decode().replace("-", "_"): value for key, value in zip(reply[::2], reply[1::2])}
        return cls(**{
            field.name: value.decode() if isinstance(value := values[field.name], bytes) and field.name != "image" else value
            for field in dataclasses.fields(cls)
        })


@dataclasses.dataclass(frozen=True)
class Receipt(_Map):
    """The result of a logout or purge: from now on, the daemon never serves an image that it held before."""

    #: Caches ended or emptied.
    users: int
    #: Images in them; None if not counted yet after the daemon's start.
    images: int | None
    #: The disk space of these images in bytes, or None.
    bytes: int | None
    #: Downloads cancelled.
    cancelled: int
    #: Sessions that remain.
    sessions: int
    #: Grows with each login, logout and purge of the uid.
    epoch: int


@dataclasses.dataclass(frozen=True)
class UserStatus(_Map):
    """What the daemon holds for a user."""

    #: None if not counted yet after the daemon's start.
    images: int | None
    #: Disk space of the images, or None.
    bytes: int | None
    sessions: int
    #: Name of the user's origin, or None.
    origin: str | None
    #: Seconds since 1970.
    logged_in_at: int
    epoch: int


@dataclasses.dataclass(frozen=True)
class ImageStatus(_Map):
    """The description of a cached image."""

    #: SHA-256, 64 lower-case hexadecimal digits.
    digest: str
    #: Media type, such as ``image/png``.
    type: str
    #: Number of bytes.
    length: int
    #: Pixels.
    width: int
    height: int
    #: Seconds since the image was fetched or confirmed.
    age: int
    #: Seconds that the image stays fresh: 0 or less if stale, None without a limit.
    ttl: int | None
    #: ``fresh`` or ``stale``.
    state: str
    #: ``memory``, ``disk``, ``origin``, ``revalidated``, ``put`` or ``fallback``.
    source: str
    epoch: int
    #: Digest of the source of a rendition; None for an image that is served as it came.
    rendered: str | None


@dataclasses.dataclass(frozen=True)
class Image(ImageStatus):
    """An image and its description."""

    image: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Upstream(_Map):
    """A server that images of the origin are requested from."""

    #: Scheme, host and port.
    host: str
    #: ``ready``, ``missing``, ``unusable``, ``suspended``, ``unauthorized`` or ``failed``.
    state: str
    #: Seconds since the response that is remembered, or None.
    age: int | None
    #: Seconds until the next request to it, or None.
    retry_in: int | None


@dataclasses.dataclass(frozen=True)
class Explanation(_Map):
    """Describes the result of ``get`` without performing it."""

    #: ``serve``, ``refresh``, ``revalidate``, ``download``, ``wait``, ``render``, ``fallback``, ``none`` or ``fail``.
    action: str
    #: Code and message of the error that ``get`` raises, or None.
    error: str | None
    #: ``memory`` or ``disk``; None if no image is held.
    held: str | None
    #: Scheme and host that the image came from, or ``put``.
    from_: str | None
    #: As in ImageStatus.
    age: int | None
    ttl: int | None
    state: str | None
    origin: str | None
    #: In the order in which they are asked. Empty if `source` has them.
    upstreams: list[Upstream]
    #: Seconds until a request to the origin is possible, if it is not now.
    retry_in: int | None
    #: Requests that wait for the download in flight, or None.
    waiting: int | None
    size: int | None
    #: The image that this one is rendered from, or None.
    source: Explanation | None

    @classmethod
    def read(cls, reply: list[Any]) -> Explanation:
        values: dict[str, Any] = {}
        for key, value in zip(reply[::2], reply[1::2]):
            name = key.decode().replace("-", "_")
            values["from_" if name == "from" else name] = value.decode() if isinstance(value, bytes) else value
        values["upstreams"] = [Upstream.read(upstream) for upstream in values["upstreams"]]
        values["source"] = values["source"] and cls.read(values["source"])
        return cls(**{field.name: values[field.name] for field in dataclasses.fields(cls)})


class Unchanged(enum.Enum):
    """The type of UNCHANGED: the image has the digest that the client knows."""

    UNCHANGED = "UNCHANGED"


UNCHANGED = Unchanged.UNCHANGED


@dataclasses.dataclass(frozen=True)
class Event:
    """A change that makes copies of images invalid."""

    #: ``login``: the user's cache was opened. ``logout``: it ended. ``purge``: all its images, or those of `profile`,
    #: were removed. ``update``: an image of `profile` is new, or the origin no longer has it.
    kind: Literal["login", "logout", "purge", "update"]
    user: str
    epoch: int
    #: None if the event concerns all images of the user.
    profile: str | None = None
