"""P13 and P14: the Swift client library, and the delivery time of events."""

from figures import Figure, Row, ratio
from rows import hits
from world import clients, images, processes

IMAGES, SIZE = 1_000, 8 << 10
#: The maximum number of concurrent requests of the client library.
TASKS = 64
SUBSCRIBERS = 1_000
#: Microseconds of a hit in the client's memory.
CACHE_GOAL = 1.0


def rows(run):
    folder = run.home / "events"
    image_folder = folder / "images"
    images.write_images(image_folder, IMAGES, SIZE)
    client = run.subject.programs / "ClientBench"
    requests = run.scaled(200_000, 20_000)
    fanout = run.subject.compile("fanout", folder, "fanout.c", "client.c")
    with (
        run.subject.start(folder).wait_for(folder / "thumbcached.sock") as daemon,
        run.subject.event_server(folder) as least,
    ):
        hits.load(daemon.address, "PUT", "alice", image_folder)
        found = run.alternate(
            [
                *(
                    (
                        mode,
                        lambda mode=mode: words(client, mode, daemon.address, "alice", IMAGES, requests, TASKS)[0],
                    )
                    for mode in ("pipelined", "minimal", "metadata")
                ),
                (
                    "redis-benchmark",
                    lambda: clients.redis_benchmark(
                        daemon.address,
                        ["GET", "alice", "__rand_int__"],
                        requests,
                        connections=1,
                        keys=IMAGES,
                        pipeline=TASKS,
                    )["rps"],
                ),
                ("cached", lambda: words(client, "cached", daemon.address, "alice", IMAGES, requests)[0] / 1e3),
                ("events", lambda: words(fanout, daemon.address, "eve", SUBSCRIBERS, run.scaled(100, 10))),
                ("least", lambda: words(fanout, least.address, "eve", SUBSCRIBERS, run.scaled(100, 10))),
            ]
        )
    ours = Figure("Thumbcache, one connection", "requests/s", found["pipelined"])
    minimal = Figure("minimal client on swift-nio", "requests/s", found["minimal"])
    metadata = Figure("the same client, with metadata", "requests/s", found["metadata"])
    theirs = Figure(f"redis-benchmark, one connection, pipeline of {TASKS}", "requests/s", found["redis-benchmark"])
    cached = Figure("GET from the client's memory", "µs", found["cached"])
    (median, nearly, longest), (_, least_nearly, _) = (
        [
            Figure(f"{server}, {name}", "ms", [result[place] for result in found[key]])
            for place, name in enumerate(("median", "p99", "longest"))
        ]
        for key, server in (("events", "thumbcached"), ("least", "minimal C server"))
    )
    yield Row(
        "P13",
        f"GETs of the Swift client, {TASKS} tasks on one connection",
        "minimal client on swift-nio that wakes a task for each reply",
        ratio(ours, minimal),
        0.8,
        figures=[ours, minimal],
        note="the library's replies have the image's metadata (META), which it parses",
    )
    yield Row(
        "P13 limit",
        "P13, the minimal client, which finds the ends of replies with metadata",
        "the same without metadata",
        ratio(metadata, minimal),
        figures=[metadata, minimal],
    )
    yield Row(
        "P13 redis",
        f"GETs of the Swift client, {TASKS} tasks on one connection",
        "redis-benchmark, one connection, same depth",
        ratio(ours, theirs),
        figures=[ours, theirs],
    )
    yield Row(
        "P13 cache",
        "GET from the Swift client's memory",
        f"{CACHE_GOAL:.0f} µs",
        cached.median / CACHE_GOAL,
        1.0,
        more_is_better=False,
        figures=[cached],
    )
    yield Row(
        "P14",
        f"p99 latency of a logout event, {SUBSCRIBERS:,} subscribers",
        "minimal C server that overwrites a key durably",
        ratio(nearly, least_nearly),
        1.5,
        more_is_better=False,
        figures=[nearly, least_nearly, median, longest],
    )


def words(*command):
    return [float(word) for word in processes.run(command).split()]
