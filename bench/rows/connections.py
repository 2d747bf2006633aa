"""P4 tail: whether connections of one account are served evenly when there are more than the loop serves at once."""

import contextlib

from figures import Figure, Row
from rows import events, hits
from world import clients, disk, images, peers, resp

CONNECTIONS = (32, 64, 128)
#: With this many names, redis-benchmark hardly ever repeats one.
NAMES = 1_000_000_000
GOAL = 2.0


def rows(run):
    folder = run.home / "even"
    image_folder = folder / "images"
    images.write_images(image_folder, hits.KEYS, hits.SIZE)
    site = folder / "site"
    site.mkdir()
    image_file = site / "same"
    image_file.write_bytes(images.image_without_zeros(hits.SIZE))
    # A miss or PUT takes several times as long as a hit.
    many, few = run.scaled(100_000, 10_000), run.scaled(20_000, 2_000)
    stored = hits.KEYS + 4 * len(CONNECTIONS) * few * run.rounds
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(disk.file_system(folder, stored * 5 // 4))
        origin = stack.enter_context(peers.origin(folder, site))
        daemon = stack.enter_context(run.subject.start(place, tier="0", origin=f"{origin.url}/same"))
        daemon.wait_for(daemon.address)
        least = stack.enter_context(run.subject.disk_server(place, hits.KEYS, hits.SIZE, hits.ONE_OF_SPREAD))
        hits.load_spread(daemon.address, image_folder)
        with resp.Client(daemon.address) as client:
            client("LOGIN", "alice")
        kinds = [
            ("P4 tail", "disk hits", many, {"words": hits.ANY_OF_SPREAD, "keys": hits.SPREAD}),
            ("P4 tail, misses", "misses", few, {"words": ["GET", "alice", "__rand_int__"], "keys": NAMES}),
            (
                "P4 tail, PUTs",
                "PUTs of new images",
                few,
                {"words": ["PUT", "alice", "__rand_int__"], "keys": NAMES, "stdin": image_file},
            ),
        ]
        for id, what, requests, options in kinds:
            servers = [(f"{what} of one account, memory tier off", daemon)]
            if id == "P4 tail":
                servers.append(("replies of a C server that reads encrypted images from the page cache", least))
            things = [
                ((name, number), lambda server=server, number=number: latencies(server, requests, number, options))
                for name, server in servers
                for number in CONNECTIONS
            ]
            if id == "P4 tail, PUTs":
                name = "files of the C loop of P7 (open, write, rename), if it served as many clients in turn"
                servers.append((name, None))
                files = place / "putloop"
                files.mkdir()
                # The loop is faster, so it writes more files, for a run of similar length.
                words = [run.subject.compile("putloop", folder, "putloop.c"), files, image_file, few * 7 // 5, NAMES]
                things += [
                    ((name, number), lambda words=words, number=number: events.words(*words, number))
                    for number in CONNECTIONS
                ]
            found = run.alternate(things)
            for (name, _), suffix, goal in zip(servers, ("", " limit"), (GOAL, None)):
                yield row(id + suffix, name, goal, {number: found[name, number] for number in CONNECTIONS})


def latencies(server, requests, connections, options):
    found = clients.redis_benchmark(server.address, requests=requests, connections=connections, **options)
    return found["p99_latency_ms"], found["avg_latency_ms"], found["max_latency_ms"]


def row(id, what, goal, found):
    figures, ratios = [], []
    for number in CONNECTIONS:
        tail, mean, longest = (
            Figure(f"{name}, {number} connections", "ms", list(values))
            for name, values in zip(("p99", "mean", "longest"), zip(*found[number]))
        )
        figures += [tail, mean, longest]
        ratios.append(tail.median / mean.median)
    return Row(
        id,
        f"p99 of {what}, the worst of 32, 64 and 128 connections",
        "mean of the same run",
        max(ratios),
        goal,
        False,
        figures,
    )
