"""R1 to R6: renditions, compared with the same libvips calls in a loop, and with vipsthumbnail."""

import itertools
import multiprocessing
import os
import shlex
import statistics
import tempfile
import time

from figures import Figure, Row, ratio
from rows import events, scale
from world import clients, disk, images, processes, resp

SIDE, SOURCE = 64, 512
#: The uid of a second account that requests renditions.
OTHER = 65_533


def rows(run):
    folder = run.home / "renditions"
    folder.mkdir()
    source = make_source(folder)
    flags = shlex.split(processes.run(["pkg-config", "--cflags", "--libs", "vips"]))
    sources = run.subject.here.parent.parent / "Sources/CRenderer"
    loop = run.subject.compile(
        "vipsloop", folder, "vipsloop.c", sources / "vips.c", libraries=["-I", sources / "include", *flags, "-lm"]
    )
    folder.chmod(0o711)  # So that another account can reach the socket.
    with disk.file_system(folder, run.scaled(20_000, 2_000)) as place:
        yield from making(run, place, source, loop)
        yield hits(run, place, source)
        yield tail(run, place, source)
        yield memory(run, place, source)


def make_source(folder):
    """Makes a JPEG of 512 by 512 pixels that is as complex as a photograph."""
    vips = processes.find("vips")
    for band in "rgb":
        processes.run([vips, "gaussnoise", folder / f"{band}.v", SOURCE, SOURCE, "--mean", 128, "--sigma", 90])
        processes.run([vips, "gaussblur", folder / f"{band}.v", folder / f"{band}2.v", 3])
    processes.run([vips, "bandjoin", " ".join(str(folder / f"{band}2.v") for band in "rgb"), folder / "all.v"])
    processes.run([vips, "cast", folder / "all.v", folder / "bytes.v", "uchar"])
    source = folder / "source.jpg"
    processes.run([vips, "copy", folder / "bytes.v", f"{source}[Q=85]", "--interpretation", "srgb"])
    return source


def start(run, folder, name, **settings):
    home = folder / name
    home.mkdir()
    for place in (run.home, folder, home):
        place.chmod(0o711)
    return run.subject.start(home, **settings).wait_for(home / "thumbcached.sock")


def put(address, user, profiles, source):
    with resp.Client(address) as client:
        client("LOGIN", user)
    resp.fill(address, (("PUT", user, profile, source) for profile in profiles))


def making(run, folder, source, loop):
    source_bytes = source.read_bytes()
    amount = run.scaled(400, 40)
    rounds = itertools.count()

    def pinned(words):
        return [processes.find("taskset"), "-c", 0, *words]

    def daemon(measure):
        with start(run, folder, f"making{next(rounds)}", core=0) as server:
            profiles = [f"p{number}" for number in range(amount + 1)]
            put(server.address, "alice", profiles, source_bytes)
            with resp.Client(server.address) as client:
                check(client("GET", "alice", profiles[0], "SIZE", SIDE, "META"))
                return measure(client, profiles[1:])

    def rate(client, profiles):
        begin = time.monotonic()
        for profile in profiles:
            client.send("GET", "alice", profile, "SIZE", SIDE)
        for _ in profiles:
            client.reply()
        return len(profiles) / (time.monotonic() - begin)

    def single(client, profiles):
        took = []
        for profile in profiles:
            begin = time.monotonic()
            client("GET", "alice", profile, "SIZE", SIDE)
            took.append(1e3 * (time.monotonic() - begin))
        return statistics.median(took)

    def stored():
        with tempfile.TemporaryDirectory(dir=folder) as made:
            return events.words(*pinned([loop, source, SIDE, amount, made]))[0]

    def thumbnails():
        times = run.scaled(20, 3)
        out = folder / "thumbnail.jpg"
        begin = time.monotonic()
        for _ in range(times):
            processes.run(pinned([processes.find("vipsthumbnail"), source, "--size", SIDE, "-o", out]))
        return times / (time.monotonic() - begin)

    found = run.alternate(
        [
            ("loop", lambda: events.words(*pinned([loop, source, SIDE, amount]))),
            ("stored", stored),
            ("rate", lambda: daemon(rate)),
            ("single", lambda: daemon(single)),
            ("vipsthumbnail", thumbnails),
        ]
    )
    loops = Figure("a loop of libvips calls", "images/s", [result[0] for result in found["loop"]])
    once = Figure("one libvips call", "ms", [result[1] for result in found["loop"]])
    limit = Figure("libvips calls in a child process, results in files", "images/s", found["stored"])
    rates = Figure("renditions", "images/s", found["rate"])
    singles = Figure("the first GET SIZE of a cached image", "ms", found["single"])
    programs = Figure("one vipsthumbnail process per image", "images/s", found["vipsthumbnail"])
    what = f"{SOURCE}×{SOURCE} JPEG to {SIDE}"
    yield Row("R1", f"renditions, {what}, one core", loops.name, ratio(rates, loops), 0.9, figures=[rates, loops])
    yield Row(
        "R1 limit", "R1, a C loop that renders in a child process and writes each result to a file", loops.name,
        ratio(limit, loops), figures=[limit, loops],
    )
    yield Row(
        "R2", f"p50 of {singles.name}", once.name, ratio(singles, once), 1.5, more_is_better=False,
        figures=[singles, once],
    )
    yield Row("R4", f"renditions, {what}", programs.name, ratio(rates, programs), 5, figures=[rates, programs])


def check(meta):
    """Raises Failed if META shows that the image was not rendered."""
    found = dict(zip(meta[::2], meta[1::2]))
    if found[b"rendered"] is None:
        raise processes.Failed("the image was not rendered: thumbcached-renderer must be in the daemon's directory")


def hits(run, folder, source):
    requests = run.scaled(300_000, 20_000)
    with start(run, folder, "hits") as server:
        put(server.address, "alice", ["made"], source.read_bytes())
        with resp.Client(server.address) as client:
            check(client("GET", "alice", "made", "SIZE", SIDE, "META"))
            made = client("GET", "alice", "made", "SIZE", SIDE)
            client("PUT", "alice", "put", made, "SIZE", SIDE)

        def rate(profile):
            words = ["GET", "alice", profile, "SIZE", SIDE]
            return clients.redis_benchmark(server.address, words, requests, pipeline=16)["rps"]

        found = run.alternate([(name, lambda name=name: rate(name)) for name in ("made", "put")], run.rounds + 2)
    ours, theirs = Figure("renditions", "hits/s", found["made"]), Figure("stored images", "hits/s", found["put"])
    return Row(
        "R3", "hits on renditions", "hits on images of the same length", ratio(ours, theirs), 0.98,
        figures=[ours, theirs],
    )


def keep_rendering(address, uid, source, is_over):
    """Requests renditions of one image in one size after another, as a uid."""
    if uid is not None:
        os.setuid(uid)
    os.nice(5)
    with resp.Client(address) as client:
        client("LOGIN", "eve")
        client("PUT", "eve", "p", source)
        for side in itertools.cycle(range(20, 400)):
            if is_over.is_set():
                return
            client("GET", "eve", "p", "SIZE", side)


def tail(run, folder, source):
    requests = run.scaled(300_000, 20_000)
    source_bytes = source.read_bytes()
    uids = [None, OTHER] if os.geteuid() == 0 else [None]
    with start(run, folder, "tail") as server:
        put(server.address, "alice", ["me"], images.image(8 << 10))

        def p99():
            return clients.redis_benchmark(server.address, ["GET", "alice", "me"], requests, connections=4)[
                "p99_latency_ms"
            ]

        def busy():
            is_over = multiprocessing.Event()
            others = [
                multiprocessing.Process(
                    target=keep_rendering, args=(server.address, uid, source_bytes, is_over), daemon=True
                )
                for uid in uids
            ]
            for other in others:
                other.start()
            time.sleep(0.5)
            try:
                found = p99()
                if any(other.exitcode is not None for other in others):
                    raise processes.Failed("a process that requests renditions has exited")
                return found
            finally:
                is_over.set()
                for other in others:
                    other.join(30)

        found = run.alternate([("quiet", p99), ("busy", busy)])
    quiet, loaded = Figure("quiet", "ms", found["quiet"]), Figure("while renditions are made", "ms", found["busy"])
    return Row(
        "R5", f"p99 of hits while {len(uids)} accounts request renditions", "quiet", ratio(loaded, quiet), 3,
        more_is_better=False, figures=[loaded, quiet],
    )


def memory(run, folder, source):
    profiles, sides = run.scaled(1_250, 20), range(20, 28)
    source_bytes = source.read_bytes()
    with start(run, folder, "memory", tier="8MiB") as server:
        with resp.Client(server.address) as client:
            scale.wait_until_settled(client)
        names = [f"p{number}" for number in range(profiles)]
        put(server.address, "alice", names, source_bytes)
        with resp.Client(server.address) as client:
            for name in names:
                client("GET", "alice", name)
            check(client("GET", "alice", names[0], "SIZE", SIDE, "META"))
            before = server.resident() / 2**20
            for name in names:
                for side in sides:
                    client.send("GET", "alice", name, "SIZE", side)
                for _ in sides:
                    client.reply()
            after = server.resident() / 2**20
    made = profiles * len(sides)
    then, now = Figure("before", "MiB", [before]), Figure(f"after {made:,} renditions", "MiB", [after])
    return Row(
        "R6", f"memory of the daemon after {made:,} renditions", "before", ratio(now, then), 1.05,
        more_is_better=False, figures=[now, then],
    )
