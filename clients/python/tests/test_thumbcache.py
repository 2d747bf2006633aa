"""Tests of the package against a daemon, whose programs are in THUMBCACHED_PROGRAMS."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import hashlib
import http.server
import inspect
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any, cast

import thumbcache
from thumbcache import UNCHANGED, AsyncClient, Client, Event

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
BOB = (REPOSITORY / "examples/images/bob.png").read_bytes()
CAROL = (REPOSITORY / "examples/images/carol.png").read_bytes()


class Origin(http.server.BaseHTTPRequestHandler):
    """Has the image of bob in every size. A request for `slow` waits until the daemon closes the connection."""

    paths: list[str] = []
    waiting = threading.Event()

    def do_GET(self) -> None:
        self.paths.append(self.path)
        profile = self.path.split("?")[0]
        if profile == "/slow":
            self.waiting.set()
            self.rfile.read(1)
            return
        status = {"/bob": 200, "/denied": 403}.get(profile, 404)
        self.send_response(status)
        self.send_header("Content-Length", str(len(BOB) if status == 200 else 0))
        self.end_headers()
        if status == 200:
            self.wfile.write(BOB)

    def log_message(self, *words: object) -> None:
        pass


class Daemon:
    def __init__(self) -> None:
        self.origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
        threading.Thread(target=self.origin.serve_forever, daemon=True).start()
        self.home = tempfile.TemporaryDirectory(prefix="thumbcache-")
        self.socket = f"{self.home.name}/socket"
        directories = []
        for name in ("cache", "state", "runtime"):
            os.mkdir(f"{self.home.name}/{name}")
            directories.append(f'{name} = "{self.home.name}/{name}"')
        pathlib.Path(self.home.name, "thumbcached.toml").write_text("\n".join([
            "[socket]", f'path = "{self.socket}"', "[storage]", *directories, "[origins.default]",
            f'url = "http://127.0.0.1:{self.origin.server_port}/{{profile}}?s={{size}}"',
            "allow-private-addresses = true"]))
        self.start()

    def start(self) -> None:
        path = f"{self.home.name}/notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(path)
            ready.settimeout(60)
            with open(f"{self.home.name}/log", "ab") as log:
                # The daemon ends with this program, also if that is killed.
                self.process = subprocess.Popen(
                    ["setpriv", "--pdeathsig", "KILL", f"{os.environ['THUMBCACHED_PROGRAMS']}/thumbcached", "--config",
                     f"{self.home.name}/thumbcached.toml"], env=os.environ | {"NOTIFY_SOCKET": path}, stderr=log)
            while b"READY=1" not in ready.recv(4096):
                pass
        os.unlink(path)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def end(self) -> None:
        self.stop()
        self.origin.shutdown()
        self.origin.server_close()
        self.home.cleanup()


class Blocking:
    """An AsyncClient with the interface of Client, so that the same tests run with both."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.runner = asyncio.Runner()
        self.client = AsyncClient(*arguments, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = getattr(self.client, name)(*arguments, **options)
            return self.runner.run(result) if inspect.iscoroutine(result) else self.entered(result)

        return call

    def close(self) -> None:
        self.runner.run(self.client.close())

    @contextlib.contextmanager
    def entered(self, context: contextlib.AbstractAsyncContextManager[Any]) -> Iterator[Any]:
        async def enter() -> Any:
            return await context.__aenter__()

        async def following(events: Any) -> Any:
            return await anext(events)

        def blocking(events: Any) -> Iterator[Any]:
            while True:
                yield self.runner.run(following(events))

        value = self.runner.run(enter())
        try:
            yield None if value is None else blocking(value)
        finally:
            async def leave() -> None:
                await context.__aexit__(None, None, None)

            self.runner.run(leave())


class Tests(unittest.TestCase):
    daemon: Daemon
    # Ends within the block, without cleanup.
    killed = "with thumbcache.Client().logged_in('alice'): os._exit(3)"

    @classmethod
    def setUpClass(cls) -> None:
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.end)

    def client(self, **options: Any) -> Client:
        client = Client(self.daemon.socket, **options)
        self.addCleanup(client.close)
        return client

    def setUp(self) -> None:
        # A test that hangs ends the program.
        faulthandler.dump_traceback_later(120, exit=True)
        self.addCleanup(faulthandler.cancel_dump_traceback_later)
        self.thumbcache = self.client()
        self.addCleanup(self.client().logout, "*")

    def test_get_returns_the_image_of_the_origin_or_none(self) -> None:
        with self.thumbcache.logged_in("alice"):
            self.assertEqual(self.thumbcache.get("alice", "bob"), BOB)
            # A daemon with a renderer resizes the image.
            self.assertIsNotNone(self.thumbcache.get("alice", "bob", size=64, fit="contain"))
            self.assertIn("/bob?s=64", Origin.paths)
            self.assertIsNone(self.thumbcache.get("alice", "nobody"))
            self.assertIsNone(self.thumbcache.get("alice", "erin", cached=True))

    def test_put_replaces_the_image_of_a_size(self) -> None:
        self.thumbcache.login(b"alice")
        self.thumbcache.put("alice", "bob", BOB)
        self.thumbcache.put("alice", "bob", CAROL, size=48, ttl=60)
        self.assertEqual(self.thumbcache.get("alice", "bob", cached=True), BOB)
        self.assertEqual(self.thumbcache.get("alice", "bob", size=48), CAROL)

    def test_get_image_describes_the_image(self) -> None:
        self.thumbcache.login("alice")
        self.thumbcache.put("alice", "carol", CAROL, ttl=60)
        image = self.thumbcache.get_image("alice", "carol")
        assert isinstance(image, thumbcache.Image)
        self.assertEqual((image.image, image.length, image.type), (CAROL, len(CAROL), "image/png"))
        self.assertEqual(image.digest, hashlib.sha256(CAROL).hexdigest())
        self.assertEqual((image.state, image.rendered), ("fresh", None))
        self.assertEqual(self.thumbcache.get_image("alice", "carol", unless=image.digest), UNCHANGED)
        self.assertIsNone(self.thumbcache.get_image("alice", "nobody"))
        status = self.thumbcache.stat_image("alice", "carol")
        assert status is not None
        self.assertEqual((status.digest, status.width), (image.digest, image.width))
        self.assertIsNone(self.thumbcache.stat_image("alice", "nobody"))

    def test_explain_says_what_get_does(self) -> None:
        self.assertEqual(self.thumbcache.explain("alice", "carol").action, "fail")
        self.thumbcache.login("alice")
        self.thumbcache.put("alice", "carol", CAROL)
        held = self.thumbcache.explain("alice", "carol")
        self.assertEqual((held.action, held.from_, held.state, held.source), ("serve", "put", "fresh", None))
        missing = self.thumbcache.explain("alice", "nobody", size=64)
        self.assertEqual((missing.action, missing.held, missing.size), ("download", None, 64))
        upstreams = missing.upstreams or (missing.source and missing.source.upstreams) or []
        self.assertEqual([upstream.state for upstream in upstreams], ["ready"])

    def test_get_many_returns_images_nulls_and_errors(self) -> None:
        self.thumbcache.login("alice")
        image, none, error = self.thumbcache.get_many("alice", "bob", "nobody", "denied", wait=60)
        self.assertEqual((image, none), (BOB, None))
        self.assertIsInstance(error, thumbcache.OriginError)
        self.assertIn("403", str(error))

    def test_warm_downloads_and_purge_removes(self) -> None:
        self.thumbcache.login("alice")
        with self.thumbcache.events("alice") as events:
            self.assertEqual(self.thumbcache.warm("alice", "bob"), 1)
            self.assertEqual(next(events).kind, "update")
        self.assertEqual(self.thumbcache.get("alice", "bob", cached=True), BOB)
        self.assertEqual(self.thumbcache.purge("alice", "carol", "bob").users, 1)
        self.assertIsNone(self.thumbcache.get("alice", "bob", cached=True))
        self.thumbcache.put("alice", "bob", BOB)
        self.assertEqual(self.thumbcache.purge("alice").images, 1)

    def test_login_and_logout_change_the_users(self) -> None:
        name = b"not UTF-8: \xff"
        self.thumbcache.login("alice", session="one")
        self.thumbcache.login("alice", session="two")
        self.thumbcache.login(name)
        users = self.thumbcache.users()
        self.assertEqual(sorted(users), ["alice", name.decode("utf-8", "surrogateescape")])
        self.assertEqual(self.thumbcache.logout(max(users)).users, 1)
        receipt = self.thumbcache.logout("alice", session="one")
        self.assertEqual((receipt.users, receipt.sessions), (0, 1))
        status = self.thumbcache.stat("alice")
        assert status is not None
        self.assertEqual((status.images, status.sessions), (0, 1))
        self.assertEqual(self.thumbcache.logout("*").users, 1)
        self.assertIsNone(self.thumbcache.stat("alice"))

    def test_logged_in_ends_its_own_session(self) -> None:
        with self.assertRaises(KeyError), self.thumbcache.logged_in("alice"):
            self.assertEqual(self.thumbcache.users(), ["alice"])
            raise KeyError
        self.assertEqual(self.thumbcache.users(), [])
        self.thumbcache.login("alice")
        with self.thumbcache.logged_in("alice"):
            self.thumbcache.put("alice", "bob", BOB)
        self.assertEqual(self.thumbcache.get("alice", "bob", cached=True), BOB)

    def test_logged_in_ends_with_the_program(self) -> None:
        with self.thumbcache.events("alice") as events:
            program = subprocess.run(
                [sys.executable, "-c", f"import asyncio, os, thumbcache\n{self.killed}"],
                env=os.environ | {"THUMBCACHED_SOCKET": self.daemon.socket})
            self.assertEqual(program.returncode, 3)
            self.assertEqual([next(events).kind, next(events).kind], ["login", "logout"])

    def test_a_held_session_ends_with_its_connection(self) -> None:
        with self.thumbcache.events("alice") as events:
            held = self.client(single_connection=True)
            held.login("alice", hold=True)
            held.close()
            self.assertEqual([next(events).kind, next(events).kind], ["login", "logout"])

    def test_events_tell_each_change(self) -> None:
        with self.thumbcache.events("alice", "erin") as events, self.thumbcache.events() as all_events:
            self.thumbcache.login("alice")
            self.thumbcache.put("alice", "bob and carol", BOB)
            removed = self.thumbcache.purge("alice", "bob and carol")
            emptied = self.thumbcache.purge("alice")
            ended = self.thumbcache.logout("alice")
            first = next(events)
            expected = [
                Event("login", "alice", first.epoch),
                Event("update", "alice", first.epoch, "bob and carol"),
                Event("purge", "alice", removed.epoch, "bob and carol"),
                Event("purge", "alice", emptied.epoch),
                Event("logout", "alice", ended.epoch),
            ]
            self.assertEqual([first, *(next(events) for _ in expected[1:])], expected)
            self.assertEqual([next(all_events) for _ in expected], expected)

    def test_each_error_code_has_a_type(self) -> None:
        table = (REPOSITORY / "docs/protocol.md").read_text().split("## Errors")[1].split("## ")[0]
        codes = set(re.findall(r"^\| `([A-Z]+)` \|", table, re.MULTILINE))
        self.assertGreater(len(codes), 10)
        # Only a connection that begins with HELLO gets NOPROTO.
        types = {error.code for error in thumbcache.ThumbcacheError.__subclasses__() if error.code}
        self.assertEqual(types, codes - {"NOPROTO"})

    def test_errors_have_the_type_of_their_code(self) -> None:
        with self.assertRaisesRegex(thumbcache.NotLoggedInError, "LOGIN"):
            self.thumbcache.get("alice", "bob")
        self.thumbcache.login("alice")
        with self.assertRaisesRegex(thumbcache.InvalidRequestError, "SIZE '5000'"):
            self.thumbcache.get("alice", "bob", size=5000)
        with self.assertRaises(thumbcache.BadImageError):
            self.thumbcache.put("alice", "bob", b"no image")
        with self.assertRaises(thumbcache.DeniedError):
            self.thumbcache.get("alice", "bob", url="http://example.org/bob")
        with self.assertRaises(thumbcache.OriginTimeoutError):
            self.thumbcache.get("alice", "slow", wait=0.001)

    def test_a_logout_cancels_requests(self) -> None:
        self.thumbcache.login("alice")
        Origin.waiting.clear()

        def log_out() -> None:
            Origin.waiting.wait()
            with Client(self.daemon.socket) as other:
                other.logout("alice")

        thread = threading.Thread(target=log_out)
        thread.start()
        self.addCleanup(thread.join)
        with self.assertRaises(thumbcache.RequestCancelledError):
            self.thumbcache.get("alice", "slow", wait=60)

    def test_a_restart_of_the_daemon_ends_events_and_keeps_logins(self) -> None:
        single = self.client(single_connection=True)
        single.login("alice")
        single.put("alice", "bob", BOB)
        self.assertEqual(self.thumbcache.get("alice", "bob"), BOB)
        with self.thumbcache.events("alice") as events:
            self.daemon.stop()
            with self.assertRaises(thumbcache.UnavailableError):
                next(events)
        with self.assertRaises(thumbcache.UnavailableError):
            self.thumbcache.users()
        with self.assertRaises(thumbcache.UnavailableError), self.thumbcache.events():
            pass
        self.daemon.start()
        for client in (self.thumbcache, single):
            self.assertEqual(client.get("alice", "bob"), BOB)

    def test_a_reply_that_does_not_arrive_in_time_is_an_error(self) -> None:
        self.thumbcache.login("alice")
        with self.assertRaises(thumbcache.UnavailableError):
            self.client(timeout=0.001).get("alice", "slow", wait=60)


class AsyncTests(Tests):
    killed = """
async def run():
    async with thumbcache.AsyncClient().logged_in("alice"):
        os._exit(3)

asyncio.run(run())
"""

    def client(self, **options: Any) -> Client:
        client = Blocking(self.daemon.socket, **options)
        self.addCleanup(client.runner.close)
        self.addCleanup(client.close)
        return cast(Client, client)

    def test_tasks_share_a_client(self) -> None:
        async def run() -> list[bytes | None]:
            async with AsyncClient(self.daemon.socket) as client, client.logged_in("alice"):
                return await asyncio.gather(*(client.get("alice", "bob") for _ in range(10)))

        Origin.paths.clear()
        self.assertEqual(asyncio.run(run()), [BOB] * 10)
        self.assertEqual(len(Origin.paths), 1)


class InterfaceTests(unittest.TestCase):
    def test_methods_have_the_parameters_of_their_command(self) -> None:
        for client in (Client, AsyncClient):
            self.assertEqual(
                str(inspect.signature(client.put)),
                "(self, /, user: 'Name', profile: 'Name', image: 'bytes', *, size: 'int | None' = None, "
                "ttl: 'int | None' = None) -> 'None'")

    def test_the_variable_names_the_socket(self) -> None:
        with unittest.mock.patch.dict(os.environ, {"THUMBCACHED_SOCKET": "/nowhere/socket"}):
            self.assertEqual(Client().path, "/nowhere/socket")
            with self.assertRaisesRegex(thumbcache.UnavailableError, "/nowhere/socket|No such file"):
                Client().users()


if __name__ == "__main__":
    unittest.main()
