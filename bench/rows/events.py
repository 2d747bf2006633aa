"""P13 and P14: the Swift client library, and how long an event takes to reach everybody."""

from figures import Figure, Row, ratio
from rows import hits
from world import clients, images, processes

IMAGES, SIZE = 1_000, 8 << 10
#: Requests of the client that are on their way at once, as many as it lets be.
TASKS = 64
SUBSCRIBERS = 1_000
#: Microseconds of a hit in the program's own memory; milliseconds until the last of nearly all subscribers knows.
GOALS = {"cache": 1.0, "event": 5.0}
RATE = 80_000


def rows(run):
    folder = run.home / "events"
    pictures = folder / "images"
    images.write_images(pictures, IMAGES, SIZE)
    client = run.subject.programs / "ClientBench"
    requests = run.scaled(200_000, 20_000)
    fanout = run.subject.compile("fanout", folder, "fanout.c", "client.c")
    with run.subject.start(folder).wait_for(folder / "thumbcached.sock") as daemon:
        hits.load(daemon.address, "PUT", "alice", pictures)
        found = run.alternate(
            [
                (
                    "pipelined",
                    lambda: words(client, "pipelined", daemon.address, "alice", IMAGES, requests, TASKS)[0],
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
            ]
        )
    ours = Figure("Thumbcache, one connection", "requests/s", found["pipelined"])
    theirs = Figure(f"redis-benchmark, one connection, pipeline of {TASKS}", "requests/s", found["redis-benchmark"])
    cached = Figure("a hit in the program's memory", "µs", found["cached"])
    median, nearly, longest = (
        Figure(f"until a subscriber has it, {name}", "ms", [result[place] for result in found["events"]])
        for place, name in enumerate(("median", "p99", "longest"))
    )
    yield Row(
        "P13",
        f"GETs of the Swift client, {TASKS} tasks on one connection",
        "redis-benchmark, one connection, as deep",
        ratio(ours, theirs),
        0.6,
        figures=[ours, theirs],
        note=f"the goal is also at least {RATE:,} requests a second",
        missed="" if ours.median >= RATE else f"fewer than {RATE:,} a second",
    )
    yield Row(
        "P13 cache",
        "an image from the Swift client's memory",
        f"{GOALS['cache']:.0f} µs",
        cached.median / GOALS["cache"],
        1.0,
        more_is_better=False,
        figures=[cached],
    )
    yield Row(
        "P14",
        f"p99 of a log-out's event, {SUBSCRIBERS:,} subscribers",
        f"{GOALS['event']:.0f} ms",
        nearly.median / GOALS["event"],
        1.0,
        more_is_better=False,
        figures=[nearly, median, longest],
    )


def words(*command):
    return [float(word) for word in processes.run(command).split()]
