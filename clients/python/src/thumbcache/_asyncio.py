from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from . import _commands, _settings
from ._commands import Command, Name
from ._errors import converted
from ._values import Event

P = ParamSpec("P")
T = TypeVar("T")


def _method(build: Callable[P, Command[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    @_commands.described_by(build)
    async def method(client: AsyncClient, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await client._run(build(*arguments, **options))

    return method


class AsyncClient:
    """As ``Client``, for asyncio: each command is a coroutine, each context manager needs ``async with``."""

    def __init__(self, path: str | None = None, *, timeout: float | None = 30, single_connection: bool = False) -> None:
        """Parameters as for ``Client``. The first command connects."""
        self.path, self.timeout = path or _settings.socket_path(), timeout
        self._redis: Any = redis.asyncio.Redis(
            unix_socket_path=self.path, single_connection_client=single_connection,
            retry=Retry(NoBackoff(), 1, (redis.ConnectionError,)), retry_on_error=[redis.ConnectionError],
            **_settings.connection(timeout))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections, which ends the sessions that they hold."""
        # redis-py 4 has close() only.
        await getattr(self._redis, "aclose", self._redis.close)()
        await self._redis.connection_pool.disconnect()

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

    async def _run(self, command: Command[T]) -> T:
        with converted():
            return command.read(await self._redis.execute_command(*command.words))

    @contextlib.asynccontextmanager
    async def logged_in(
        self, user: Name, *, origin: str | None = None, token: str | None = None, refresh: str | None = None
    ) -> AsyncIterator[None]:
        """As ``Client.logged_in``."""
        log_in, log_out = _commands.session(user, origin=origin, token=token, refresh=refresh)
        async with AsyncClient(self.path, timeout=self.timeout, single_connection=True) as held:
            await held._run(log_in)
            try:
                yield
            finally:
                await self._run(log_out)

    @contextlib.asynccontextmanager
    async def events(self, *users: Name) -> AsyncIterator[AsyncIterator[Event]]:
        """As ``Client.events``, with an asynchronous iterator."""
        subscription = _commands.subscribe(*users)
        connection: Any = redis.asyncio.UnixDomainSocketConnection(path=self.path, **_settings.connection(None))

        async def events() -> AsyncIterator[Event]:
            while True:
                with converted():
                    event = subscription.read(await connection.read_response())
                if event is not None:
                    yield event

        try:
            with converted():
                await connection.connect()
                await connection.send_command(*subscription.words)
                for _ in subscription.words[1:]:
                    while subscription.read(await connection.read_response()) is not None:
                        pass
            yield events()
        finally:
            await connection.disconnect()
