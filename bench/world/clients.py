"""The measuring clients. All are existing programs."""

import csv
import io
import re
import time

from world import processes


def redis_benchmark(
    address, words, requests, connections=32, pipeline=1, keys=None, stdin=None, core=None, timeout=300
):
    """Runs redis-benchmark and returns its result: rps, and latencies in milliseconds, by column name.

    `__rand_int__` in a word is replaced by a random number below `keys` with twelve digits.
    """
    command = [processes.find("taskset"), "-c", core] if core is not None else []
    command += [
        processes.find("redis-benchmark"),
        "-s",
        address,
        "-c",
        connections,
        "-n",
        requests,
        "-P",
        pipeline,
        "--csv",
    ]
    if keys is not None:
        command += ["-r", keys]
    options = {}
    if stdin is not None:
        command.append("-x")
        options["stdin"] = open(stdin, "rb")
    try:
        output = processes.run(command + list(words), timeout=timeout, **options)
    finally:
        if stdin is not None:
            options["stdin"].close()
    table = [row for row in csv.reader(io.StringIO(output)) if len(row) >= 8]
    if len(table) < 2:
        raise processes.Failed(f"unexpected output of redis-benchmark: {output[-200:]!r}")
    return dict(zip(table[-2], [table[-1][0]] + [float(cell) for cell in table[-1][1:8]]))


def h2load(address, url_file, requests, connections=32):
    """Requests the URLs in turn over HTTP/1.1 with keep-alive. Returns requests per second."""
    output = processes.run(
        [
            processes.find("h2load"),
            "--h1",
            "-t",
            1,
            "-c",
            connections,
            "-n",
            requests,
            "-B",
            f"unix:{address}",
            "-i",
            url_file,
        ]
    )
    rate = re.search(r"finished in .*?, ([\d.]+) req/s", output)
    codes = re.search(r"status codes: (\d+) 2xx", output)
    if not rate or not codes or int(codes[1]) != requests:
        raise processes.Failed(f"h2load did not receive {requests} images: {output[-400:]!r}")
    return float(rate[1])


def memaslap(port, directory, seconds=2):
    """Gets 8 KiB values over 32 TCP connections. Returns requests per second, including the initial SETs."""
    settings = directory / "memaslap.cfg"
    settings.write_text("key\n16 16 1\nvalue\n8192 8192 1\ncmd\n0 0.01\n1 0.99\n")
    output = processes.run(
        [
            processes.find("memcaslap", "memaslap"),
            "-s",
            f"127.0.0.1:{port}",
            "-T",
            1,
            "-c",
            32,
            "-t",
            f"{seconds}s",
            "-w",
            "1k",
            "-F",
            settings,
        ]
    )
    rate = re.search(r"TPS: (\d+)", output)
    if not rate:
        raise processes.Failed(f"unexpected output of memaslap: {output[-200:]!r}")
    return float(rate[1])


def curl_parallel(urls, directory):
    """Downloads to files, 32 at once. Returns the duration in seconds."""
    settings = directory.parent / "curl.cfg"
    settings.write_text("".join(f'url = "{url}"\noutput = "{directory}/{n}"\n' for n, url in enumerate(urls)))
    begin = time.perf_counter()
    processes.run(
        [
            processes.find("curl"),
            "--silent",
            "--show-error",
            "--fail",
            "--parallel",
            "--parallel-max",
            32,
            "--config",
            settings,
        ]
    )
    return time.perf_counter() - begin


def curl_one(url):
    """Downloads once. Returns the duration in seconds, as measured by curl."""
    output = processes.run(
        [
            processes.find("curl"),
            "--silent",
            "--show-error",
            "--fail",
            "--output",
            "/dev/null",
            "--write-out",
            "%{time_total}",
            url,
        ]
    )
    return float(output)


def redis_cli_pipe(address, frames, expected):
    """Sends a file of requests over one connection and reads all replies. Returns the duration in seconds."""
    begin = time.perf_counter()
    with open(frames, "rb") as source:
        output = processes.run([processes.find("redis-cli"), "-s", address, "--pipe"], stdin=source)
    seconds = time.perf_counter() - begin
    if f"errors: 0, replies: {expected}" not in output:
        raise processes.Failed(f"unexpected output of redis-cli --pipe: {output[-300:]!r}")
    return seconds
