"""H1: images over HTTP, compared with nginx as a cache, by the same client over a Unix socket."""

import contextlib

from figures import Figure, Row, ratio
from world import clients, images, peers, resp

COUNT = 1_000
SIZE = 8 << 10


def rows(run):
    folder = run.home / "avatars"
    files = folder / "files" / "avatar"
    files.mkdir(parents=True)
    hashes = [f"{number:032x}" for number in range(COUNT)]
    for name in hashes:
        (files / name).write_bytes(images.image(SIZE))
    url_file = folder / "urls"
    url_file.write_text("".join(f"http://localhost/avatar/{name}?s=80\n" for name in hashes))
    requests = run.scaled(100_000, 10_000)
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(run.subject.start(folder)).wait_for(folder / "thumbcached.sock")
        with resp.Client(daemon.address) as client:
            client("LOGIN", "site")
        resp.fill(
            daemon.address, (("PUT", "site", name, (files / name).read_bytes(), "SIZE", "80") for name in hashes)
        )
        ours = stack.enter_context(run.subject.http(folder, daemon.address))
        nginx = stack.enter_context(peers.nginx_cache(folder, folder / "files"))
        floor = stack.enter_context(run.subject.http_floor(folder, COUNT, SIZE))
        forwarder = stack.enter_context(run.subject.http_forwarder(folder, daemon.address, SIZE))
        servers = {"ours": ours, "nginx": nginx, "floor": floor, "forwarder": forwarder}
        for server in servers.values():
            clients.h2load(server.address, url_file, 2 * COUNT, 1)
        found = run.alternate(
            [
                (name, lambda server=server: clients.h2load(server.address, url_file, requests))
                for name, server in servers.items()
            ]
        )
    rates = [
        Figure(title, "requests/s", found[key])
        for key, title in (
            ("ours", "thumbcached-http"),
            ("nginx", "nginx proxy_cache"),
            ("floor", "bare NIOHTTP1 server"),
            ("forwarder", "bare NIOHTTP1 server that requests each image from the daemon"),
        )
    ]
    ours, nginx, floor, forwarder = rates
    yield Row(
        "H1",
        "GET /avatar/HASH over HTTP, memory hit, keep-alive, 32 connections",
        "nginx proxy_cache",
        ratio(ours, nginx),
        0.5,
        figures=rates,
    )
    yield Row("H1 floor", "H1, bare NIOHTTP1 server", "nginx proxy_cache", ratio(floor, nginx), figures=[floor, nginx])
    yield Row(
        "H1 limit",
        "H1, bare NIOHTTP1 server that requests each image from the daemon",
        "nginx proxy_cache",
        ratio(forwarder, nginx),
        figures=[forwarder, nginx],
    )
