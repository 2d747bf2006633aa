"""B2 and B3: the costs of idle programs."""

import contextlib
import os
import pathlib
import time

from figures import Figure, Row, ratio
from world import images, peers, processes, resp

COUNT, SIZE = 200, 8 << 10


def rows(run):
    folder = run.home / "idle"
    image_folder = folder / "images"
    images.write_images(image_folder, COUNT, SIZE)
    with peers.origin(folder, image_folder) as origin, peers.redis(folder) as redis:
        with run.subject.start(folder, origin=origin.url) as daemon:
            daemon.wait_for(daemon.address)
            use(daemon, redis)
            # Until then, idle connections to the origin are closed and the idle renderer exits.
            time.sleep(run.scaled(60, 2))
            yield wake_ups(run, daemon, redis)
            # Only root can read the memory of a process that is not dumpable: proc(5), smaps_rollup.
            if os.geteuid() == 0:
                yield from memory(run, folder, daemon, redis)


def use(daemon, redis):
    """Logs in, downloads, stores and gets images; stores the same images in Redis."""
    with resp.Client(daemon.address) as client, resp.Client(redis.address) as other:
        client("LOGIN", "alice")
        for number in range(COUNT):
            client("GET", "alice", f"{number:012}")
            client("PUT", "alice", f"put{number:012}", images.image(SIZE))
            client("GET", "alice", f"put{number:012}")
            other("SET", f"{number:012}", images.image(SIZE))


def wake_ups(run, daemon, redis):
    seconds = run.scaled(60, 2)
    before, begin = (switches(daemon), switches(redis)), time.monotonic()
    time.sleep(seconds)
    after, passed = (switches(daemon), switches(redis)), time.monotonic() - begin
    mine, other = (
        Figure(name, "wake-ups/s", [sum(count - old.get(thread, 0) for thread, count in new.items()) / passed])
        for name, old, new in zip(("thumbcached", "redis-server"), before, after)
    )
    return Row(
        "B2",
        "wake-ups per second of all processes, idle after use",
        "0",
        mine.median,
        0.1,
        False,
        figures=[mine, other],
        note="voluntary context switches of all threads, without systemd's watchdog",
    )


def switches(server):
    """Returns the voluntary context switches so far, by thread: proc_pid_status(5)."""
    counts = {}
    for pid in server.pids():
        for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for line in (thread / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    counts[thread.name] = int(line.split()[1])
    if not counts:
        raise processes.Failed(f"{server.name} has ended: {server.log_tail()}")
    return counts


def memory(run, folder, daemon, redis):
    """Compares the memory with that of Redis and, as a limit, with as many minimal servers as there are processes.

    One of them has as many images as thumbcached.
    """
    mine, other = (Figure(server.name, "MiB", [proportional(server) / 2**20]) for server in (daemon, redis))
    with contextlib.ExitStack() as stack:
        floors = []
        for number in range(len(daemon.pids())):
            home = folder / f"floor{number}"
            home.mkdir()
            floor = stack.enter_context(run.subject.floor(home, 1 if number else 2 * COUNT, SIZE, ("PING",)))
            floors.append(floor)
            with resp.Client(floor.address) as client:
                for _ in range(2 * COUNT):
                    client("PING")
        least = Figure("as many minimal swift-nio servers", "MiB", [sum(map(proportional, floors)) / 2**20])
    yield Row(
        "B3",
        "memory of all processes (sum of PSS), idle after use",
        "idle redis-server",
        ratio(mine, other),
        3,
        False,
        figures=[mine, other],
    )
    yield Row(
        "B3 limit", f"B3, {len(floors)} minimal swift-nio servers", "idle redis-server", ratio(least, other),
        more_is_better=False, figures=[least, other], note="they share the pages of one program",
    )


def proportional(server):
    """Returns the memory of all its processes in bytes: Pss of smaps_rollup, which divides shared pages."""
    total = 0
    for pid in server.pids():
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total
