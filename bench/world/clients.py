"""The clients that measure. None of them is ours."""

import csv
import io
import re
import time

from world import processes


def redis_benchmark(
    address, words, requests, connections=32, pipeline=1, keys=None, stdin=None, core=None, timeout=300
):
    """Runs redis-benchmark and returns its line: rps, and latencies in milliseconds by the names of its columns.

    `__rand_int__` in a word becomes twelve digits below `keys`.
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
        said = processes.run(command + list(words), timeout=timeout, **options)
    finally:
        if stdin is not None:
            options["stdin"].close()
    table = [row for row in csv.reader(io.StringIO(said)) if len(row) >= 8]
    if len(table) < 2:
        raise processes.Failed(f"redis-benchmark said {said[-200:]!r}")
    return dict(zip(table[-2], [table[-1][0]] + [float(cell) for cell in table[-1][1:8]]))


def h2load(address, list_of_urls, requests, connections=32):
    """HTTP/1.1 with keep-alive; one URL after another on each connection. Returns requests per second."""
    said = processes.run(
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
            list_of_urls,
        ]
    )
    rate = re.search(r"finished in .*?, ([\d.]+) req/s", said)
    codes = re.search(r"status codes: (\d+) 2xx", said)
    if not rate or not codes or int(codes[1]) != requests:
        raise processes.Failed(f"h2load did not get {requests} images: {said[-400:]!r}")
    return float(rate[1])


def memaslap(port, directory, seconds=2):
    """Gets of 8 KiB over 32 connections. It knows no Unix sockets. Returns requests per second, stores included."""
    settings = directory / "memaslap.cfg"
    settings.write_text("key\n16 16 1\nvalue\n8192 8192 1\ncmd\n0 0.01\n1 0.99\n")
    said = processes.run(
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
    rate = re.search(r"TPS: (\d+)", said)
    if not rate:
        raise processes.Failed(f"memaslap said {said[-200:]!r}")
    return float(rate[1])


def curl_parallel(urls, directory):
    """Downloads into files, 32 at once. Returns the seconds it took."""
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
    """Seconds of one download, as curl counts them."""
    said = processes.run(
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
    return float(said)


def redis_cli_pipe(address, frames, expected):
    """Sends a file of requests on one connection and reads all replies. Returns the seconds it took."""
    begin = time.perf_counter()
    with open(frames, "rb") as source:
        said = processes.run([processes.find("redis-cli"), "-s", address, "--pipe"], stdin=source)
    seconds = time.perf_counter() - begin
    if f"errors: 0, replies: {expected}" not in said:
        raise processes.Failed(f"redis-cli --pipe said {said[-300:]!r}")
    return seconds
