"""thumbcached, and the minimal servers that it is compared with."""

import os
import pathlib

from world import images, processes
from world.processes import Server


class Subject:
    """The built programs: `thumbcached`, and FloorServer if it exists."""

    def __init__(self, programs):
        self.here = pathlib.Path(__file__).resolve().parent.parent / "programs"
        self.programs = pathlib.Path(programs).resolve()
        self.daemon = self.programs / "thumbcached"
        self.floor_program = self.programs / "FloorServer"

    def start(
        self,
        home,
        threads=1,
        tier="64MiB",
        origin=None,
        core=None,
        store=None,
        quota="64GiB",
        ttl="1d",
        is_limited=False,
    ):
        """Starts the daemon with its store in `store` (default: `home`), `quota` for each user, and, with an `origin`,
        images that live for `ttl`.

        All other settings have their defaults, except limits that a thousand connections and a million images of one
        uid exceed. With `is_limited`, these limits and the quota also have their defaults.
        """
        store = store or home
        for kind in ("cache", "state", "runtime"):
            (store / kind).mkdir(exist_ok=True)
        address = home / "thumbcached.sock"
        settings = home / "thumbcached.toml"
        settings.write_text(
            f'threads = {threads}\n[socket]\npath = "{address}"\n'
            + "[storage]\n"
            + ("" if is_limited else f'quota = "64GiB"\nuser-quota = "{quota}"\n')
            + "".join(f'{kind} = "{store}/{kind}"\n' for kind in ("cache", "state", "runtime"))
            + f'[memory]\ntier = "{tier}"\n'
            # Only admins see the store's pending work in INFO.
            + f'[access]\nadmins = ["{os.geteuid()}"]\n'
            + (
                ""
                if is_limited
                else "[limits]\nconnections = 4096\nconnections-per-uid = 2048\nusers-per-uid = 20000\n"
                "queue-per-uid = 4096\n"
            )
            + (
                f'[origins.default]\nurl = "{origin}/{{profile}}"\nallow-private-addresses = true\n'
                f'default-ttl = "{ttl}"\n'
                if origin
                else ""
            )
        )
        server = Server("thumbcached", [self.daemon, "--config", settings], home / "thumbcached.log", core)
        server.address = address
        return server

    def http(self, home, daemon):
        """Starts thumbcached-http, which serves the images of the user `site`, on a Unix socket."""
        address = home / "http.sock"
        settings = home / "http.toml"
        settings.write_text(f'socket = "{daemon}"\n[images]\nlisten = "{address}"\nuser = "site"\n')
        server = Server(
            "thumbcached-http", [self.programs / "thumbcached-http", "--config", settings], home / "http.log"
        )
        server.address = address
        return server.wait_for(address)

    def floor(self, home, images, image_size, words):
        """Starts the minimal swift-nio server, which answers every frame of that length with a prepared image."""
        return self._floor("floor", self.floor_program, home, images, image_size, words)

    def http_floor(self, home, images, image_size):
        """Starts the bare swift-nio HTTP server, which answers every request with a prepared image."""
        return self._http_floor(home, "http", image_size, images)

    def http_forwarder(self, home, daemon, image_size):
        """Starts the bare swift-nio HTTP server that requests each image of the user `site` from the daemon."""
        return self._http_floor(home, "forward", image_size, daemon)

    def _http_floor(self, home, mode, *words):
        address = home / f"{mode}-floor.sock"
        server = Server(f"{mode} floor", [self.floor_program, mode, address, *words], home / f"{mode}-floor.log")
        server.address = address
        return server.wait_for(address)

    def minimal_server(self, home, images, image_size, words):
        """Starts the minimal C server, which makes only the necessary system calls."""
        return self._floor(
            "least", self.compile("minserver", home, "minserver.c", "serve.c"), home, images, image_size, words
        )

    def disk_server(self, home, images, image_size, words):
        """Starts the minimal C server that reads and decrypts an image file for each reply."""
        files = home / "diskserver-files"
        files.mkdir()
        loop = self.compile("diskserver", home, "diskserver.c", "serve.c", libraries=["-lcrypto"])
        return self._floor("diskserver", loop, home, images, image_size, words, files)

    def event_server(self, home):
        """Starts the minimal C server that overwrites a key and sends an event to each subscriber."""
        server = Server(
            "fanserver",
            [
                self.compile("fanserver", home, "fanserver.c", "serve.c"),
                home / "fanserver.sock",
                home / "fanserver.key",
            ],
            home / "fanserver.log",
        )
        server.address = home / "fanserver.sock"
        return server.wait_for(server.address)

    def compile(self, name, home, *sources, libraries=()):
        """Compiles a C program of bench/programs."""
        program = home / name
        processes.run(
            [processes.find("cc"), "-O2", "-o", program, *(self.here / source for source in sources), *libraries]
        )
        return program

    def _floor(self, name, program, home, images, image_size, words, *more):
        from world import resp

        address = home / f"{name}.sock"
        length = len(resp.frame(*words))
        server = Server(name, [program, address, length, image_size, images, *more], home / f"{name}.log")
        server.address = address
        return server.wait_for(address)


def put_frames(user, numbers, size):
    """Yields PUTs of small, distinct images with twelve-digit names."""
    for number in numbers:
        yield "PUT", user, b"%012d" % number, images.image(size)
