"""The commands of the protocol. Each function returns the words to send and the function that reads the reply."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import secrets
from collections.abc import Callable
from typing import Any, Generic, Literal, ParamSpec, TypeVar, Union

import redis

from ._errors import ThumbcacheError, from_reply
from ._values import UNCHANGED, Event, Explanation, Image, ImageStatus, Receipt, Unchanged, UserStatus

P = ParamSpec("P")
T = TypeVar("T")
#: The id of a user, profile or session. Text is sent as UTF-8; names that the daemon returns are text, with surrogate
#: escapes for bytes that are not UTF-8, as in file names.
Name = Union[str, bytes]
Fit = Literal["cover", "contain"]
Format = Literal["source", "png", "jpeg", "webp"]


@dataclasses.dataclass(frozen=True)
class Command(Generic[T]):
    words: list[Any] = dataclasses.field(repr=False)
    read: Callable[[Any], T]


def described_by(build: Callable[..., Command[Any]]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Gives a method of a client the name, documentation and parameters of the command that it sends."""

    def describe(method: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(build)
        client = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        result = signature.return_annotation.removeprefix("Command[").removesuffix("]")
        functools.update_wrapper(method, build)
        setattr(method, "__signature__", signature.replace(
            parameters=[client, *signature.parameters.values()], return_annotation=result))
        return method

    return describe


def _options(**options: object) -> list[object]:
    """None and False omit an option; True sends its name alone."""
    words: list[object] = []
    for name, value in options.items():
        if value is not None and value is not False:
            words += [name] if value is True else [name, value]
    return words


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _none(reply: object) -> None:
    return None


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def login(
    user: Name, *, session: Name | None = None, hold: bool = False, origin: str | None = None, token: str | None = None,
    refresh: str | None = None,
) -> Command[None]:
    """Opens the user's cache unless it is open, and adds a session.

    With `hold`, the session ends with the connection: use a client that is made with ``single_connection=True``, or
    ``logged_in``.
    """
    options = _options(SESSION=session, HOLD=hold, ORIGIN=origin, TOKEN=token, REFRESH=refresh)
    return Command(["LOGIN", user, *options], _none)


def logout(user: Name, *, session: Name | None = None, uid: int | Literal["*"] | None = None) -> Command[Receipt]:
    """Ends a session, or all sessions of the user. The last one destroys the user's images. ``*`` is every user."""
    return Command(["LOGOUT", user, *_options(SESSION=session, UID=uid)], Receipt.read)


def session(
    user: Name, *, origin: str | None = None, token: str | None = None, refresh: str | None = None
) -> tuple[Command[None], Command[Receipt]]:
    """Login and logout of a session that no other program has."""
    name = f"python {secrets.token_hex(16)}"
    return login(user, session=name, hold=True, origin=origin, token=token, refresh=refresh), logout(user, session=name)


def purge(user: Name, *profiles: Name, uid: int | Literal["*"] | None = None) -> Command[Receipt]:
    """Removes every size of the profiles, or without profiles all images of the user. ``*`` is every user."""
    count = [len(profiles), *profiles] if profiles else []
    return Command(["PURGE", user, *count, *_options(UID=uid)], Receipt.read)


def users() -> Command[list[str]]:
    """Returns the users that are logged in."""
    return Command(["USERS"], lambda reply: [_text(name) for name in reply])


def get(
    user: Name, profile: Name, *, size: int | None = None, fit: Fit | None = None, format: Format | None = None,
    url: str | None = None, wait: float | None = None, cached: bool = False, nowait: bool = False,
) -> Command[bytes | None]:
    """Returns an image, or None if there is none. Downloads a missing or stale image from the user's origin.

    `size` is the side of a square in pixels into which the image fits, `wait` the longest wait in seconds. `cached`
    downloads nothing; `nowait` downloads in the background.
    """
    options = _options(
        SIZE=size, FIT=fit, FORMAT=format, URL=url, WAIT=_milliseconds(wait), CACHED=cached, NOWAIT=nowait)
    return Command(["GET", user, profile, *options], lambda reply: reply)


def get_image(
    user: Name, profile: Name, *, unless: str | None = None, size: int | None = None, fit: Fit | None = None,
    format: Format | None = None, url: str | None = None, wait: float | None = None, cached: bool = False,
    nowait: bool = False,
) -> Command[Image | Unchanged | None]:
    """As ``get``, with a description of the image; UNCHANGED if its digest is `unless`."""
    words = get(
        user, profile, size=size, fit=fit, format=format, url=url, wait=wait, cached=cached, nowait=nowait).words

    def read(reply: Any) -> Image | Unchanged | None:
        if reply is None:
            return None
        return UNCHANGED if reply == b"UNCHANGED" else Image.read(reply)

    return Command([*words, *_options(IFNOT=unless, META=True)], read)


def get_many(
    user: Name, *profiles: Name, size: int | None = None, fit: Fit | None = None, format: Format | None = None,
    wait: float | None = None, cached: bool = False, nowait: bool = False,
) -> Command[list[bytes | ThumbcacheError | None]]:
    """Returns an image, None or an error for each profile, in the same order. Downloads in parallel."""
    options = _options(SIZE=size, FIT=fit, FORMAT=format, WAIT=_milliseconds(wait), CACHED=cached, NOWAIT=nowait)
    return Command(
        ["MGET", user, len(profiles), *profiles, *options],
        lambda reply: [from_reply(item) if isinstance(item, redis.ResponseError) else item for item in reply])


def put(
    user: Name, profile: Name, image: bytes, *, size: int | None = None, ttl: int | None = None
) -> Command[None]:
    """Stores an image: of one size, or without `size` the source of every size. It stays fresh for `ttl` seconds."""
    return Command(["PUT", user, profile, image, *_options(SIZE=size, TTL=ttl)], _none)


def warm(
    user: Name, *profiles: Name, size: int | None = None, fit: Fit | None = None, format: Format | None = None
) -> Command[int]:
    """Queues missing and stale images for download in the background, and returns how many."""
    options = _options(SIZE=size, FIT=fit, FORMAT=format)
    return Command(["WARM", user, len(profiles), *profiles, *options], int)


def stat(user: Name) -> Command[UserStatus | None]:
    """Returns what the daemon holds for a user; None if the user is not logged in."""
    return Command(["STAT", user], lambda reply: None if reply is None else UserStatus.read(reply))


def stat_image(
    user: Name, profile: Name, *, size: int | None = None, fit: Fit | None = None, format: Format | None = None
) -> Command[ImageStatus | None]:
    """Returns the description of a held image, or None. Downloads and renders nothing."""
    options = _options(SIZE=size, FIT=fit, FORMAT=format)
    return Command(["STAT", user, profile, *options], lambda reply: None if reply is None else ImageStatus.read(reply))


def explain(
    user: Name, profile: Name, *, size: int | None = None, fit: Fit | None = None, format: Format | None = None
) -> Command[Explanation]:
    """Describes the result of ``get`` without performing it. Downloads nothing."""
    options = _options(SIZE=size, FIT=fit, FORMAT=format)
    return Command(["EXPLAIN", user, profile, *options], Explanation.read)


def subscribe(*users: Name) -> Command[Event | None]:
    """The reader returns None for a message that is no event, such as the confirmation for each user."""

    def read(message: list[Any]) -> Event | None:
        if message[0] != b"message":
            return None
        kind, epoch, profile = (message[2].split(b" ", 2) + [None])[:3]
        if kind not in (b"login", b"logout", b"purge", b"update"):
            return None
        return Event(kind.decode(), _text(message[1]), int(epoch), None if profile is None else _text(profile))

    return Command(["SUBSCRIBE", *(users or ["*"])], read)
