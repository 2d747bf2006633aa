"""thumbcached itself, and the floors it is held against."""

import os
import pathlib

from world import images, processes
from world.processes import Server


class Subject:
    """How to start the programs that were built: `thumbcached`, and `floor` if there is one."""

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
        """Starts the daemon with what it keeps in `store` (else in `home`), `quota` for each user, and images from an
        `origin` that live for `ttl`. Everything else is as it comes, but for limits that a thousand connections and a
        million images of one uid need;
        `is_limited` leaves these, and the quota, as they come, too."""
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
            # INFO shows an admin alone what the store still has to do.
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

    def floor(self, home, images, image_size, words):
        """A bare swift-nio server that answers every frame as long as that of `words` from ready buffers."""
        return self._floor("floor", self.floor_program, home, images, image_size, words)

    def least(self, home, images, image_size, words):
        """The same in C, with nothing around the system calls: what the machine itself takes."""
        return self._floor(
            "least", self.compile("leastloop", home, "leastloop.c", "serve.c"), home, images, image_size, words
        )

    def least_on_disk(self, home, images, image_size, words):
        """The same in C with images that lie encrypted in files, which it reads and opens for each reply."""
        files = home / "diskloop-files"
        files.mkdir()
        loop = self.compile("diskloop", home, "diskloop.c", "serve.c", libraries=["-lcrypto"])
        return self._floor("diskloop", loop, home, images, image_size, words, files)

    def compile(self, name, home, *sources, libraries=()):
        """A program of ours in C."""
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
    """PUTs of small images, all different, under twelve digits."""
    for number in numbers:
        yield "PUT", user, b"%012d" % number, images.image(size)
