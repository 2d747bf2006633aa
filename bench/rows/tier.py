"""P4 tier: many more images than fit in the memory tier, with uneven popularity."""

import contextlib
import itertools
import random

from figures import Figure, Row, ratio
from rows import hits
from world import clients, images, peers, processes, resp

USERS = 10
SIZE = 8 << 10
#: The n-th most popular image is requested n^-EXPONENT times as often as the most popular one.
EXPONENT = 0.99


def rows(run):
    folder = run.home / "tier"
    count, requests = run.scaled(100_000, 2_000), run.scaled(200_000, 20_000)
    image_folder = folder / "images"
    images.write_images(image_folder, count, SIZE)
    # The same in every run, and popular images are spread over all users.
    draw = random.Random(0)
    numbers = list(range(count))
    draw.shuffle(numbers)
    weights = itertools.accumulate((rank + 1) ** -EXPONENT for rank in range(count))
    numbers = draw.choices(numbers, cum_weights=list(weights), k=requests)
    program = run.subject.compile("replay", folder, "replay.c")
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(run.subject.start(folder, tier="64MiB")).wait_for(folder / "thumbcached.sock")
        fill(daemon.address, image_folder, count)
        nginx = stack.enter_context(peers.nginx_cache(folder, image_folder))
        everything = folder / "urls"
        everything.write_text("".join(f"http://localhost/{number:012}\n" for number in range(count)))
        clients.h2load(nginx.address, everything, count, 1)
        servers = {"thumbcached": (daemon, get_from_daemon), "nginx proxy_cache": (nginx, get_from_nginx)}
        things = []
        for name, (server, request) in servers.items():
            frames = folder / f"frames of {name}"
            frames.write_bytes(b"".join(map(request, numbers)))
            length = reply_length(server.address, request(numbers[0]))
            words = [program, server.address, 32, len(request(0)), length, frames]
            processes.run(words)  # Warms up the page cache and the tier.
            things.append(
                (
                    name,
                    lambda server=server, words=words: hits.measured(
                        server, requests, lambda: float(processes.run(words))
                    ),
                )
            )
        found = run.alternate(things)
    rates, costs = (
        [Figure(name, unit, [result[place] for result in found[name]]) for name in servers]
        for place, unit in ((0, "requests/s"), (1, "µs CPU"))
    )
    yield Row(
        "P4 tier",
        f"GET of {count:,} images of ten users, Zipf({EXPONENT}), memory tier 64 MiB, page cache warm",
        "nginx proxy_cache",
        ratio(*rates),
        1.2,
        figures=rates + costs,
    )


def fill(address, image_folder, count):
    with resp.Client(address) as client:
        for user in range(USERS):
            client("LOGIN", f"u{user}")
    resp.fill_in_parallel(
        address,
        [
            (
                ("PUT", f"u{number % USERS}", f"{number:012}", (image_folder / f"{number:012}").read_bytes())
                for number in range(first, count, 4)
            )
            for first in range(4)
        ],
    )


def get_from_daemon(number):
    return resp.frame("GET", f"u{number % USERS}", f"{number:012}")


def get_from_nginx(number):
    return b"GET /%012d HTTP/1.1\r\nHost: localhost\r\n\r\n" % number


def reply_length(address, request, size=SIZE):
    """Returns the length of a reply. All have the same length, because images, names, dates and ETags do."""
    with contextlib.closing(processes.connect(address)) as stream:
        stream.sendall(request)
        answer = stream.recv(1 << 16)
        head = answer.find(b"\r\n\r\n") + 4 if answer.startswith(b"HTTP") else answer.find(b"\r\n") + 4
        if not answer.startswith((b"HTTP/1.1 200", b"$%d\r\n" % size)):
            raise processes.Failed(f"unexpected reply to the first request: {answer[:80]!r}")
        return head + size
