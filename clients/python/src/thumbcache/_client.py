from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from . import _commands, _settings
from ._commands import Command, Name
from ._errors import converted
from ._values import Event

P = ParamSpec("P")
T = TypeVar("T")


def _method(build: Callable[P, Command[T]]) -> Callable[Concatenate[Client, P], T]:
    @_commands.described_by(build)
    def method(client: Client, /, *arguments: P.args, **options: P.kwargs) -> T:
        return client._run(build(*arguments, **options))

    return method


class Client:
    """A client of the daemon. Threads may share it, unless it is made with ``single_connection=True``."""

    def __init__(self, path: str | None = None, *, timeout: float | None = 30, single_connection: bool = False) -> None:
        """Raises UnavailableError if `single_connection` is set and the daemon cannot be reached.

        :param path: the daemon's socket; by default THUMBCACHED_SOCKET, or the usual places.
        :param timeout: seconds to wait for a reply. The default exceeds the time that the daemon gives an origin.
        :param single_connection: sends all commands over one connection, as ``login(hold=True)`` needs it.
        """
        self.path, self.timeout = path or _settings.socket_path(), timeout
        with converted():
            # A daemon that stops closes its connections; the commands may be repeated.
            self._redis: Any = redis.Redis(
                unix_socket_path=self.path, single_connection_client=single_connection,
                retry=Retry(NoBackoff(), 1, (redis.ConnectionError,)), retry_on_error=[redis.ConnectionError],
                **_settings.connection(timeout))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections, which ends the sessions that they hold."""
        self._redis.close()
        self._redis.connection_pool.disconnect()

    login = _method(_commands.login)
    logout = _method(_commands.logout)
    purge = _method(_commands.purge)
    users = _method(_commands.users)
    get = _method(_commands.get)
    get_image = _method(_commands.get_image)
    get_many = _method(_commands.get_many)
    put = _method(_commands.put)
    warm = _method(_commands.warm)
    stat = _method(_commands.stat)
    stat_image = _method(_commands.stat_image)
    explain = _method(_commands.explain)

    def _run(self, command: Command[T]) -> T:
        with converted():
            return command.read(self._redis.execute_command(*command.words))

    @contextlib.contextmanager
    def logged_in(
        self, user: Name, *, origin: str | None = None, token: str | None = None, refresh: str | None = None
    ) -> Iterator[None]:
        """Logs the user in for the duration of the block, in a session of its own.

        A connection holds the session, which therefore also ends if the program is killed or the daemon restarts.
        Sessions of other programs keep the user's cache.
        """
        log_in, log_out = _commands.session(user, origin=origin, token=token, refresh=refresh)
        with Client(self.path, timeout=self.timeout, single_connection=True) as held:
            held._run(log_in)
            try:
                yield
            finally:
                self._run(log_out)

    @contextlib.contextmanager
    def events(self, *users: Name) -> Iterator[Iterator[Event]]:
        """Subscribes to users, or to all users of the uid, and yields an iterator that waits for events.

        No event after the beginning of the block is missed. The iterator raises UnavailableError when the connection is
        lost: then discard every copy, subscribe, and request the images again.
        """
        subscription = _commands.subscribe(*users)
        connect: Callable[..., Any] = redis.UnixDomainSocketConnection
        connection = connect(path=self.path, **_settings.connection(None))

        def events() -> Iterator[Event]:
            while True:
                with converted():
                    event = subscription.read(connection.read_response())
                if event is not None:
                    yield event

        try:
            with converted():
                connection.send_command(*subscription.words)
                for _ in subscription.words[1:]:
                    while subscription.read(connection.read_response()) is not None:
                        pass
            yield events()
        finally:
            connection.disconnect()
