"""growth: rate and memory of hits against the number of images, users and connections, and against the image size."""

import contextlib
import dataclasses
import random

from figures import Figure, Row, ratio
from rows import idle, scale, tier, writes
from world import disk, images, peers, processes, resp


@dataclasses.dataclass(frozen=True)
class Load:
    """What is stored, and how it is requested."""

    images: int = 1_000
    users: int = 10
    connections: int = 32
    size: int = 8 << 10

    @property
    def requests(self):
        """Number of requests of a round: fewer for larger images, which take longer to copy.

        At least one for each image, up to 150,000, so that the requested images exceed the memory tier.
        """
        return max(30_000 * (64 << 10) // (self.size + (64 << 10)), min(self.images, 150_000))


#: The loads of each plot. The fields of Load that are not named are constant in a plot.
AXES = {
    # The memory tier has room for about 32,000 of these images.
    "images": [Load(images=10**n, size=1 << 10) for n in range(3, 7)],
    # The memory tier has room for all images.
    "users": [Load(images=3 * 10**n, users=10**n, size=256) for n in range(1, 5)],
    "connections": [Load(connections=n) for n in (1, 4, 16, 64, 250)],
    # The memory tier has room for all images, which take up to twice their size. The unsent replies of more connections
    # could exceed the daemon's limit of an account.
    "size": [
        Load(images=min(1_000, (24 << 20) // size), connections=8, size=size)
        for size in (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)
    ],
}
WHAT = {"images": "images stored", "users": "users", "connections": "connections", "size": "bytes per image"}
#: Stores the same value under ARGV[1] keys.
FILL_REDIS = "for n = 0, ARGV[1] - 1 do redis.call('SET', string.format('%012d', n), ARGV[2]) end"


def rows(run):
    folder = run.home / "growth"
    folder.mkdir()
    program = run.subject.compile("replay", folder, "replay.c")
    for axis, loads in AXES.items():
        figures = []
        for load in loads[: run.scaled(len(loads), 2)]:
            for name, found in measure(run, folder, program, load).items():
                figures += [
                    Figure(name, unit, list(values), getattr(load, axis))
                    for unit, values in zip(("requests/s", "MiB"), zip(*found))
                ]
        rates = {figure.name: figure for figure in figures if figure.unit == "requests/s"}
        yield Row(
            f"growth {axis}",
            f"GET with {figures[-1].at:,} {WHAT[axis]}",
            "Redis",
            ratio(rates["thumbcached"], rates["redis-server"]),
            figures=figures,
        )


def measure(run, folder, program, load):
    """Returns the rate and the memory in MiB of each server, in each round."""
    draw = random.Random(0)
    numbers = draw.choices(range(load.images), k=run.scaled(load.requests, 2_000))
    found = {}
    # One server after the other, because the page cache may not have room for two stores of a million images.
    with contextlib.closing(servers(run, folder, program, load)) as running:
        for name, server, request in running:
            replay(program, server, load, request, numbers)  # Warms up the page cache and the tier.
            found[name] = [
                (replay(program, server, load, request, numbers), idle.proportional(server) / 2**20)
                for _ in range(run.few_rounds)
            ]
    return found


def servers(run, folder, program, load):
    """Yields each server with all images stored: its name, the server, and a function that makes the n-th GET."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    image = images.image(load.size)
    (site / "same").write_bytes(image)

    def user(number):
        return f"u{number % load.users:05}"

    def get(number):
        return resp.frame("GET", user(number), f"{number:012}")

    # A user takes several directories.
    with disk.file_system(folder, load.images + 8 * load.users) as place:
        with run.subject.start(place) as daemon:
            daemon.wait_for(daemon.address)
            for command, count in (
                (lambda number: ("LOGIN", user(number)), load.users),
                (lambda number: ("PUT", user(number), f"{number:012}", image), load.images),
            ):
                parts = [range(first, count, writes.WRITERS) for first in range(writes.WRITERS)]
                resp.fill_in_parallel(daemon.address, [map(command, part) for part in parts])
            yield "thumbcached", daemon, get
        with run.subject.start(place, tier="0") as daemon:
            daemon.wait_for(daemon.address)
            with resp.Client(daemon.address) as client:
                scale.wait_until_counted(client)
            yield "thumbcached, tier off", daemon, get
    with peers.redis(folder) as redis:
        with resp.Client(redis.address) as client:
            client("EVAL", FILL_REDIS, 0, load.images, image)
        yield "redis-server", redis, lambda number: resp.frame("GET", f"{number:012}")
    with disk.file_system(folder, load.images) as place, peers.nginx_cache(place, site) as nginx:
        replay(program, nginx, load, tier.get_from_nginx, range(load.images))
        yield "nginx proxy_cache", nginx, tier.get_from_nginx


def replay(program, server, load, request, numbers):
    """Returns the requests per second."""
    frames = program.with_name("frames")
    frames.write_bytes(b"".join(map(request, numbers)))
    first = request(numbers[0])
    length = tier.reply_length(server.address, first, load.size)
    words = [program, server.address, min(load.connections, len(numbers)), len(first), length, frames]
    return float(processes.run(words, timeout=600))
