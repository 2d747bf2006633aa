"""Starts the peers, tuned as an experienced administrator would: memory or page cache only, no logs, Unix sockets.

Every function returns a running server with its address in `.address`.
"""

import os
import resource

from world import processes
from world.processes import Server, find


def redis(home, core=None):
    """Starts Redis without persistence."""
    address = home / "redis.sock"
    server = Server(
        "redis-server",
        [
            find("redis-server"),
            "--port",
            0,
            "--unixsocket",
            address,
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            home,
            "--daemonize",
            "no",
        ],
        home / "redis.log",
        core,
    )
    server.address = address
    return server.wait_for(address)


def memcached(home):
    """Starts memcached on loopback TCP, because Debian's clients for it do not support Unix sockets."""
    port = processes.free_port()
    words = [find("memcached"), "-l", "127.0.0.1", "-p", port, "-U", 0, "-m", 1024, "-t", 1, "-c", 4096]
    server = Server("memcached", words + as_root(["-u", "root"]), home / "memcached.log")
    server.address = port
    return server.wait_for(port)


def as_root(words):
    """Returns the words for root, else none: options that keep a program's user, who must read the directories."""
    return words if os.geteuid() == 0 else []


def nginx(home, name, http, workers=1, listens=None):
    """Starts nginx with the given `http` block."""
    folder = home / name
    folder.mkdir()
    user = "user root;" if os.geteuid() == 0 else ""
    # A worker that reaches its limit of descriptors returns 500, so cached files leave some for connections.
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    kept_open = min(20_000, descriptors * 3 // 4)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(f"""{user}
daemon off; worker_processes {workers}; worker_rlimit_nofile {descriptors}; pid {folder}/pid; error_log stderr error;
events {{ worker_connections 8192; }}
http {{
access_log off; default_type image/png; sendfile on; tcp_nopush on; server_tokens off;
keepalive_timeout 600; keepalive_requests 1000000000; reset_timedout_connection on;
open_file_cache max={kept_open} inactive=600s; open_file_cache_valid 600s;
{temporary}{http}
}}
""")
    server = Server(
        name, [find("nginx"), "-p", folder, "-e", folder / "error.log", "-c", folder / "nginx.conf"], folder / "log"
    )
    server.address = listens
    return server.wait_for(listens)


def nginx_cache(home, images, workers=1):
    """Starts nginx as a cache (proxy_cache) in front of an nginx that serves the files, and `same` for other paths."""
    name = f"nginx-cache-{workers}"
    address, behind = home / f"{name}.sock", home / f"{name}-origin.sock"
    return nginx(
        home,
        name,
        f"""
proxy_cache_path {home}/{name}/store levels=1:2 keys_zone=images:160m max_size=16g inactive=1h use_temp_path=off;
server {{ listen unix:{behind} backlog=4096; root {images}; location / {{ try_files $uri /same =404; }} }}
server {{
  listen unix:{address} backlog=4096;
  location / {{ proxy_pass http://unix:{behind}; proxy_cache images; proxy_cache_key $uri; proxy_cache_valid 200 1h; }}
}}""",
        workers,
        address,
    )


def origin(home, images, core=None):
    """Starts nginx on loopback TCP as an origin. `.log_file` has a line for each request.

    A file of 300 KiB below /slow/ takes about a second. Every path below /same/ returns the file `same`.
    """
    port = processes.free_port()
    log = home / "origin.log"
    server = nginx(
        home,
        "origin",
        f"""
log_format path '$request_uri';
server {{
  listen 127.0.0.1:{port} backlog=4096; root {images}; access_log {log} path;
  location /slow/ {{ limit_rate 200k; }}
  location /same/ {{ try_files /same =404; }}
}}""",
        1,
        port,
    )
    server.url = f"http://127.0.0.1:{port}"
    server.log_file = log
    return server


def varnish(home, behind):
    """Starts Varnish with in-memory storage in front of an HTTP server on a Unix socket."""
    address = home / "varnish.sock"
    server = Server(
        "varnishd",
        [
            find("varnishd"),
            "-F",
            "-j",
            "none",
            "-n",
            home / "varnish",
            "-a",
            address,
            "-b",
            behind,
            "-s",
            "malloc,512m",
            "-t",
            3600,
            "-p",
            "vsl_mask=-ReqHeader",
        ],
        home / "varnish.log",
    )
    server.address = address
    return server.wait_for(address, 60)
