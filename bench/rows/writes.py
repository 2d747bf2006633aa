"""P7 and P8: PUT, and PURGE of a user with many images."""

import shutil
import signal
import time

from figures import Figure, Row, ratio
from world import clients, disk, images, processes, resp, subject

SIZE = 8 << 10
#: Number of connections that fill a store.
WRITERS = 16


def rows(run):
    folder = run.home / "writes"
    folder.mkdir()
    with disk.file_system(folder, run.scaled(200_000, 10_000)) as place:
        yield from puts(run, place)
        yield from purges(run, place)


def puts(run, folder):
    image_file = folder / "image"
    image_file.write_bytes(images.image_without_zeros(SIZE))
    loop = folder / "putloop"
    processes.run([processes.find("cc"), "-O2", "-o", loop, run.subject.here / "putloop.c"])
    count = run.scaled(20_000, 2_000)
    with run.subject.start(folder) as daemon:
        daemon.wait_for(daemon.address)
        with resp.Client(daemon.address) as client:
            client("LOGIN", "alice")
        things = []
        for kind, names in (("new", 10_000_000), ("again", 100)):
            files = folder / f"files-{kind}"
            files.mkdir()
            things += [
                (
                    ("ours", kind),
                    lambda names=names: clients.redis_benchmark(
                        daemon.address, ["PUT", "alice", "__rand_int__"], count, keys=names, stdin=image_file
                    )["rps"],
                ),
                (
                    ("loop", kind),
                    lambda names=names, files=files: float(processes.run([loop, files, image_file, count, names])),
                ),
            ]
        found = run.alternate(things)
    for id, kind, what, goal in (
        ("P7", "new", "PUT of new images, 32 connections", 0.6),
        ("P7 again", "again", "PUT that replaces existing images", None),
    ):
        mine, other = (
            Figure(name, "images/s", found[key, kind]) for key, name in (("ours", "thumbcached"), ("loop", "C loop"))
        )
        yield Row(id, what, "C loop: open, write, rename", ratio(mine, other), goal, figures=[mine, other])
    shutil.rmtree(folder / "cache")
    for kind in ("new", "again"):
        shutil.rmtree(folder / f"files-{kind}")


def purges(run, folder):
    """Compares a PURGE of many images with a PURGE of one, and with deleting the same files by rm."""
    many = run.scaled(100_000, 5_000)
    large, small, removal = [], [], []
    for number in range(run.few_rounds):
        home = folder / f"purge-{number}"
        home.mkdir()
        with run.subject.start(home) as daemon:
            daemon.wait_for(daemon.address)
            fill_user(daemon.address, "alice", many)
            with resp.Client(daemon.address) as client:
                client("LOGIN", "bob")
            for _ in range(5):
                resp.fill(daemon.address, subject.put_frames("bob", [1], 512))
                small.append(purge(daemon, "bob"))
            large.append(purge(daemon, "alice"))
            # Killed before it has deleted many files, so that rm deletes them.
            daemon.stop(signal.SIGKILL)
        removal.append(delete(home / "cache", many))
        shutil.rmtree(home)
    mine, one = Figure(f"PURGE of {many:,} images", "ms", large), Figure(
        "PURGE of 1 image, 5 in each round", "ms", small
    )
    tree = Figure("rm -r", "ms", removal)
    yield Row("P8", f"PURGE of {many:,} images", "PURGE of 1 image", ratio(mine, one), 2.0, False, figures=[mine, one])
    yield Row(
        "P8 tree",
        f"PURGE of {many:,} images",
        "rm -r of the same files",
        ratio(tree, mine),
        1_000,
        figures=[mine, tree],
        note="the ratio is how many times faster PURGE is",
    )


def fill_user(address, user, count, size=512):
    with resp.Client(address) as client:
        client("LOGIN", user)
    step = -(-count // WRITERS)
    resp.fill_in_parallel(
        address,
        [subject.put_frames(user, range(start, min(start + step, count)), size) for start in range(0, count, step)],
    )


def purge(daemon, user):
    """Returns the milliseconds from the command to its receipt, measured by redis-benchmark."""
    return clients.redis_benchmark(daemon.address, ["PURGE", user], 1, connections=1)["max_latency_ms"]


def delete(tree, count):
    """Returns the milliseconds to delete a tree of `count` images, scaled if some of them are already deleted."""
    left = sum(1 for path in tree.rglob("*") if path.is_file())
    begin = time.perf_counter()
    processes.run(["rm", "-r", tree], timeout=600)
    return (time.perf_counter() - begin) * 1e3 * count / max(left, 1)
