"""P5 and P6: downloads, compared with curl."""

import time

from figures import Figure, Row, ratio
from world import clients, disk, images, peers, processes, resp

SIZE = 8 << 10


def rows(run):
    folder = run.home / "misses"
    image_folder = folder / "images"
    count = run.scaled(2_000, 200)
    images.write_images(image_folder, count, SIZE)
    (image_folder / "slow").mkdir()
    (image_folder / "slow" / "one").write_bytes(images.image(300 << 10))
    with peers.origin(folder, image_folder) as origin, disk.file_system(folder, 50_000) as place:
        yield cold_misses(run, place, origin, count)
        yield one_missing_image(run, place, origin)


def cold_misses(run, folder, origin, count):
    frames = folder / "frames"
    frames.write_bytes(b"".join(resp.frame("GET", "alice", f"{number:012}") for number in range(count)))
    urls = [f"{origin.url}/{number:012}" for number in range(count)]
    files = folder / "files"
    files.mkdir()
    with run.subject.start(folder, origin=origin.url) as daemon:
        daemon.wait_for(daemon.address)
        with resp.Client(daemon.address) as client:
            client("LOGIN", "alice")

            def ours():
                client("PURGE", "alice")
                begin = time.perf_counter()
                answered = clients.redis_cli_pipe(daemon.address, frames, count)
                # Replies precede the writes. The polling interval is part of the result.
                wait_until(client, "stored_images", count, pause=0.001)
                stored = time.perf_counter() - begin
                # A purge deletes files after its receipt; wait, so that this does not affect the next measurement.
                wait_until(client, "trash_bytes", 0, pause=0.01)
                return count / answered, count / stored

            def theirs():
                for path in files.iterdir():
                    path.unlink()
                return count / clients.curl_parallel(urls, files)

            found = run.alternate([("ours", ours), ("curl", theirs)])
    mine, stored = (
        Figure(name, "images/s", list(rates))
        for name, rates in zip(("thumbcached", "thumbcached, until all images are on disk"), zip(*found["ours"]))
    )
    other = Figure("curl --parallel", "images/s", found["curl"])
    return Row(
        "P5",
        f"{count:,} cold misses from a local nginx",
        "curl --parallel --parallel-max 32, to files",
        ratio(mine, other),
        0.9,
        figures=[mine, stored, other],
    )


def wait_until(client, field, value, pause, seconds=60, section="store"):
    """Waits until a field of INFO has the value; polls every `pause` seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = client.info(section)[field]
        if found == str(value):
            return
        time.sleep(pause)
    raise processes.Failed(f"timeout after {seconds} s: INFO {section} has {field}:{found}, expected {value}")


def one_missing_image(run, folder, origin):
    """Measures a thousand concurrent requests for one image that the origin sends within about a second."""
    clients_at_once = 1_000
    plain, last, asked = [], [], []
    with run.subject.start(folder, origin=f"{origin.url}/slow") as daemon:
        daemon.wait_for(daemon.address)
        with resp.Client(daemon.address) as client:
            client("LOGIN", "alice")
            for _ in range(run.rounds):
                plain.append(clients.curl_one(f"{origin.url}/slow/one") * 1e3)
                client("PURGE", "alice")
                before = requests_of(origin)
                answer = clients.redis_benchmark(
                    daemon.address, ["GET", "alice", "one"], clients_at_once, connections=clients_at_once
                )
                last.append(answer["max_latency_ms"])
                asked.append(requests_of(origin) - before)
    mine, other = Figure("thumbcached, last reply", "ms", last), Figure("curl, one download", "ms", plain)
    return Row(
        "P6",
        f"{clients_at_once:,} clients request one missing image at once",
        "one download with curl",
        ratio(mine, other),
        2.0,
        False,
        figures=[mine, other, Figure("requests at the origin", "", asked)],
        note="the goal is also exactly 1 request at the origin",
        missed="" if all(count == 1 for count in asked) else "more than one request at the origin",
    )


def requests_of(origin):
    return sum(1 for line in origin.log_file.read_text().splitlines() if line.endswith("/slow/one"))
