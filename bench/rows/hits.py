"""P1 to P4: hits, compared with Redis, memcached, nginx, Varnish, and minimal servers."""

import contextlib
import os
import resource

from figures import Figure, Row, ratio
from world import clients, images, peers, resp

KEYS = 1_000
SIZE = 8 << 10
#: The goal of P4, relative to the C server's rate in the same run.
SHARE_OF_LIMIT = 0.8
#: The bound of redis-benchmark's random numbers for requests that are spread over users; it has one bound for all. One
#: number is the user and two are the image, so ten users with a hundred images each make KEYS.
SPREAD = 10
WORDS = ("GET", "alice", "0" * 12)
#: Requests for one image of such a store, and for any of them.
ONE_OF_SPREAD = ["GET", "u" + "0" * 12, "0" * 24]
ANY_OF_SPREAD = ["GET", "u__rand_int__", "__rand_int__" * 2]


def rows(run):
    folder = run.home / "hits"
    image_folder = folder / "images"
    images.write_images(image_folder, KEYS, SIZE)
    memory, ours, least = hits_in_memory(run, folder, image_folder)
    yield from memory
    yield from hits_on_cores(run, folder, image_folder)
    yield from hits_on_disk(run, folder, image_folder, ours, least)


def measured(server, requests, call):
    """Returns the request rate of a client's run, and the server's and the client's CPU time per request in µs."""
    before, client_before = server.cpu(), clients_cpu()
    rate = call()
    return rate, (server.cpu() - before) / requests * 1e6, (clients_cpu() - client_before) / requests * 1e6


def clients_cpu():
    """Returns the CPU seconds of all clients that have ended: getrusage(2)."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def load(address, command, user, image_folder):
    """Stores the images in a RESP server."""
    with resp.Client(address) as client:
        if command == "PUT":
            client("LOGIN", user)
    words = (lambda name: ("PUT", user, name)) if command == "PUT" else (lambda name: ("SET", user + name))
    resp.fill(address, (words(path.name) + (path.read_bytes(),) for path in sorted(image_folder.iterdir())))


def load_spread(address, image_folder):
    """Stores the images in the daemon, evenly for SPREAD users."""
    with resp.Client(address) as client:
        for user in range(SPREAD):
            client("LOGIN", f"u{user:012}")
    resp.fill(
        address,
        (
            (
                "PUT",
                f"u{number % SPREAD:012}",
                f"{number // SPREAD % SPREAD:012}{number // SPREAD**2:012}",
                path.read_bytes(),
            )
            for number, path in enumerate(sorted(image_folder.iterdir()))
        ),
    )


def by_redis_benchmark(server, requests, pipeline, words, keys=KEYS):
    """Measures with redis-benchmark, after a tenth of the requests as a warm-up."""
    clients.redis_benchmark(server.address, words, requests // 10, keys=keys, pipeline=pipeline)
    return measured(
        server,
        requests,
        lambda: clients.redis_benchmark(server.address, words, requests, keys=keys, pipeline=pipeline)["rps"],
    )


def hits_in_memory(run, folder, image_folder):
    plain, piped = run.scaled(200_000, 20_000), run.scaled(400_000, 40_000)
    ours, theirs = ["GET", "alice", "__rand_int__"], ["GET", "alice__rand_int__"]
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(peers.redis(folder))
        daemon = stack.enter_context(run.subject.start(folder)).wait_for(folder / "thumbcached.sock")
        floor = stack.enter_context(run.subject.floor(folder, KEYS, SIZE, WORDS))
        least = stack.enter_context(run.subject.minimal_server(folder, KEYS, SIZE, WORDS))
        memcached = stack.enter_context(peers.memcached(folder))
        load(daemon.address, "PUT", "alice", image_folder)
        load(redis.address, "SET", "alice", image_folder)
        things = [
            (
                f"{name}{pipeline}",
                lambda server=server, pipeline=pipeline, words=words: by_redis_benchmark(
                    server, plain if pipeline == 1 else piped, pipeline, words
                ),
            )
            for name, server, words in (
                ("ours", daemon, ours),
                ("redis", redis, theirs),
                ("floor", floor, ours),
                ("least", least, ours),
            )
            for pipeline in (1, 16)
        ]
        found = run.alternate(things)
        memaslap = [clients.memaslap(memcached.address, folder) for _ in range(run.rounds)]

    names = {
        "ours": "thumbcached",
        "redis": "redis-server",
        "floor": "minimal swift-nio server",
        "least": "minimal C server",
    }

    def figures(unit, value):
        return {key: Figure(names[key.rstrip("16")], unit, [value(result) for result in found[key]]) for key in found}

    rates, costs = figures("requests/s", lambda result: result[0]), figures("µs CPU", lambda result: result[1])
    slap = Figure("memcached (loopback TCP, memaslap)", "requests/s", memaslap)
    # Computed from the client's CPU time with the minimal server, for which the client waits least.
    limit = Figure(
        "redis-benchmark without waiting", "requests/s", [1e6 / result[2] for result in found["least16"]]
    )
    return (
        [
            Row(
                "P1",
                "GET, memory hit, 32 connections",
                "Redis",
                ratio(rates["ours1"], rates["redis1"]),
                1.0,
                figures=[rates["ours1"], rates["redis1"], rates["floor1"], rates["least1"], slap],
            ),
            Row(
                "P2",
                "GET, memory hit, 32 connections, pipeline of 16",
                "Redis",
                ratio(rates["ours16"], rates["redis16"]),
                1.3,
                figures=[rates["ours16"], rates["redis16"], rates["floor16"], rates["least16"]],
            ),
            Row(
                "P2 limit",
                "P2 if redis-benchmark never had to wait",
                "Redis",
                ratio(limit, rates["redis16"]),
                figures=[limit, rates["redis16"]],
            ),
            Row(
                "P3",
                "server CPU per memory hit",
                "Redis",
                ratio(costs["ours1"], costs["redis1"]),
                0.9,
                False,
                figures=[costs["ours1"], costs["redis1"]],
            ),
            Row(
                "P3 limit",
                "server CPU per memory hit, minimal C server",
                "Redis",
                ratio(costs["least1"], costs["redis1"]),
                more_is_better=False,
                figures=[costs["least1"], costs["redis1"]],
            ),
            Row(
                "P3 piped",
                "server CPU per memory hit, pipeline of 16",
                "Redis",
                ratio(costs["ours16"], costs["redis16"]),
                more_is_better=False,
                figures=[costs["ours16"], costs["redis16"]],
            ),
            Row(
                "P3 floor",
                "server CPU per memory hit",
                "minimal swift-nio server",
                ratio(costs["ours1"], costs["floor1"]),
                1.25,
                False,
                figures=[costs["ours1"], costs["floor1"]],
            ),
            Row(
                "P3 floor, piped",
                "server CPU per memory hit, pipeline of 16",
                "minimal swift-nio server",
                ratio(costs["ours16"], costs["floor16"]),
                more_is_better=False,
                figures=[costs["ours16"], costs["floor16"]],
            ),
        ],
        costs["ours1"],
        costs["least1"],
    )


def hits_on_cores(run, folder, image_folder):
    """Measures a hit with two event loops: with requests spread over users, and with all for one image of one user, for
    which both loops need the same lock.
    """
    requests = run.scaled(100_000, 10_000)
    with contextlib.ExitStack() as stack:
        things = []
        for threads in (1, 2):
            home = folder / f"memory-{threads}"
            home.mkdir()
            daemon = stack.enter_context(run.subject.start(home, threads=threads)).wait_for(home / "thumbcached.sock")
            load_spread(daemon.address, image_folder)
            things += [
                (
                    (kind, threads),
                    lambda server=daemon, words=words: by_redis_benchmark(server, requests, 1, words, SPREAD),
                )
                for kind, words in (("spread", ANY_OF_SPREAD), ("one", ONE_OF_SPREAD))
            ]
        found = run.alternate(things)

    for id, kind, what in (
        ("P3 cores", "spread", "server CPU per memory hit, 2 threads"),
        ("P3 cores, one image", "one", "server CPU per memory hit, 2 threads, one image of one user"),
    ):
        two, one = (
            [
                Figure(f"thumbcached, {name}", unit, [result[place] for result in found[kind, threads]])
                for place, unit in ((0, "requests/s"), (1, "µs CPU"))
            ]
            for threads, name in ((2, "2 threads"), (1, "1 thread"))
        )
        yield Row(
            id, what, "1 thread", ratio(two[1], one[1]), more_is_better=False, figures=[two[1], one[1], two[0], one[0]]
        )


def hits_on_disk(run, folder, image_folder, cost_in_memory, least_cost):
    """Measures with the memory tier off and a warm page cache: with one thread each, and with one thread per core."""
    requests = run.scaled(100_000, 10_000)
    cores = os.cpu_count()
    url_file = folder / "urls"
    url_file.write_text("".join(f"http://localhost/{path.name}\n" for path in sorted(image_folder.iterdir())))
    with contextlib.ExitStack() as stack:
        caches = {
            workers: stack.enter_context(peers.nginx_cache(folder, image_folder, workers)) for workers in {1, cores}
        }
        varnish = stack.enter_context(peers.varnish(folder, folder / "nginx-cache-1-origin.sock"))
        daemons = {}
        for threads in sorted({1, cores}):
            home = folder / f"disk-{threads}"
            home.mkdir()
            daemon = stack.enter_context(run.subject.start(home, threads=threads, tier="0"))
            daemons[threads] = daemon.wait_for(home / "thumbcached.sock")
            load_spread(daemon.address, image_folder)
        for server in list(caches.values()) + [varnish]:
            clients.h2load(server.address, url_file, 2 * KEYS, 1)
        least = stack.enter_context(run.subject.disk_server(folder, KEYS, SIZE, ONE_OF_SPREAD))
        things = [
            (("ours", threads), lambda server=server: by_redis_benchmark(server, requests, 1, ANY_OF_SPREAD, SPREAD))
            for threads, server in daemons.items()
        ]
        things += [(("least", 1), lambda: by_redis_benchmark(least, requests, 1, ANY_OF_SPREAD, SPREAD))]
        things += [
            (("nginx", workers), lambda server=server: by_h2load(server, url_file, requests))
            for workers, server in caches.items()
        ]
        things += [(("varnish", 0), lambda: by_h2load(varnish, url_file, requests))]
        found = run.alternate(things)

    def figure(key, name, unit):
        return Figure(name, unit, [result[0 if unit == "requests/s" else 1] for result in found[key]])

    varnish_rate = figure(("varnish", 0), "varnish (in memory)", "requests/s")
    nginx_cost = figure(("nginx", 1), "nginx proxy_cache", "µs CPU")
    yield Row(
        "P3 nginx",
        "server CPU per memory hit",
        "nginx proxy_cache (h2load)",
        ratio(cost_in_memory, nginx_cost),
        0.6,
        False,
        figures=[cost_in_memory, nginx_cost, figure(("varnish", 0), "varnish (in memory)", "µs CPU")],
    )
    yield Row(
        "P3 nginx limit",
        "server CPU per memory hit, minimal C server",
        "nginx proxy_cache (h2load)",
        ratio(least_cost, nginx_cost),
        more_is_better=False,
        figures=[least_cost, nginx_cost],
    )
    one, limit = (
        [
            figure((name, 1), title, unit)
            for unit in ("requests/s", "µs CPU")
            for name, title in (held, ("nginx", "nginx proxy_cache"))
        ]
        for held in (("ours", "thumbcached"), ("least", "minimal C server with decryption"))
    )
    yield Row(
        "P4",
        "GET, memory tier off, page cache warm; one thread, one worker",
        "nginx proxy_cache",
        ratio(one[0], one[1]),
        SHARE_OF_LIMIT * ratio(limit[0], limit[1]),
        figures=one + [varnish_rate],
    )
    if cores > 1:
        all_cores = [
            figure((name, cores), title, "requests/s")
            for name, title in (("ours", "thumbcached"), ("nginx", "nginx proxy_cache"))
        ]
        yield Row(
            "P4 cores",
            f"P4 with {cores} threads and {cores} workers",
            "nginx proxy_cache",
            ratio(all_cores[0], all_cores[1]),
            figures=all_cores,
        )
    yield Row(
        "P4 limit",
        "P4 with a C server that only reads and decrypts",
        "nginx proxy_cache",
        ratio(limit[0], limit[1]),
        figures=limit,
    )


def by_h2load(server, url_file, requests):
    return measured(server, requests, lambda: clients.h2load(server.address, url_file, requests))
