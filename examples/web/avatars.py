#!/usr/bin/env python3
"""A small web service that shows the pictures of thumbcached to browsers (apt install python3-redis).

    avatars.py PORT 'NAME <PROFILE>' …

Somebody signs in, sees the contacts, and logs out; then neither the service nor the browser has their pictures any
more. It listens on 127.0.0.1; the rest is Python's standard library. THUMBCACHED_SOCKET names the daemon's socket.
"""

import email.utils
import html
import http.cookies
import http.server
import os
import pathlib
import re
import secrets
import string
import sys
import threading
import urllib.parse

import redis

PAGE = string.Template((pathlib.Path(__file__).parent / "page.html").read_text())
STATUS = {"NOLOGIN": 401, "BUSY": 503, "TIMEOUT": 504}  # of the daemon's errors; any other is 502, as without a daemon


class Sessions:
    """Who is signed in: users by the secret in their cookie."""

    def __init__(self, path):
        self.users, self.lock = {}, threading.Lock()
        self.daemon = redis.Redis(unix_socket_path=path)
        # With HOLD a session lasts no longer than this connection: should the service crash, everybody is logged out.
        self.holding = redis.Redis(unix_socket_path=path, single_connection_client=True)

    def begin(self, user):
        secret = secrets.token_urlsafe()
        with self.lock:
            self.holding.execute_command("LOGIN", user, "SESSION", secret, "HOLD")
            self.users[secret] = user
        return secret

    def end(self, secret):
        """Once this returns, and no other browser has the user signed in, there is no cache of the user any more."""
        self.daemon.execute_command("LOGOUT", self.users[secret], "SESSION", secret)
        self.users.pop(secret, None)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        user = self.server.sessions.users.get(self.cookie())
        path = self.path.split("/")
        if self.path == "/":
            self.answer(200, self.page(user), {"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store"})
        elif len(path) == 4 and path[1] == "avatar":
            # The user is a part of the path, so that no browser takes one user's picture for another's.
            owner, profile = map(urllib.parse.unquote, path[2:])
            self.avatar(user, profile) if owner == user else self.answer(401)
        else:
            self.answer(404)

    def avatar(self, user, profile):
        words = ["GET", user, profile, "META"]
        # What the browser has already: its digest is the ETag. The daemon then need not read the image out.
        known = re.search(r'"([0-9a-f]{64})"', self.headers.get("If-None-Match", ""))
        words += ["IFNOT", known[1]] if known else []
        try:
            reply = self.server.sessions.daemon.execute_command(*words)
        except redis.ResponseError as error:
            code = str(error).split(" ")[0]
            if code == "NOLOGIN":  # Logged out elsewhere, so here as well.
                self.server.sessions.users.pop(self.cookie(), None)
            return self.answer(STATUS.get(code, 502))
        except redis.RedisError:
            return self.answer(502)
        # Private: for nobody but this browser. No-cache: it asks before it uses what it has, and a log-out counts.
        headers = {"Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff"}
        if reply is None:
            return self.answer(404, b"", headers)
        if reply in (b"UNCHANGED", "UNCHANGED"):
            return self.answer(304, b"", headers | {"ETag": known[0]})
        meta = dict(zip(reply[::2], reply[1::2])) if isinstance(reply, list) else reply
        headers |= {"ETag": f'"{meta[b"digest"].decode()}"', "Content-Type": meta[b"type"].decode()}
        self.answer(200, meta[b"image"], headers)

    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
        try:
            if self.path == "/sign-in" and "user" in form:
                # Here your own sign-in belongs: this one believes every name.
                secret = self.server.sessions.begin(form["user"][0])
                cookie = {"Set-Cookie": f"session={secret}; Path=/; HttpOnly; SameSite=Strict"}
                self.answer(303, b"", cookie | {"Location": "/"})
            elif self.path == "/log-out" and self.cookie() in self.server.sessions.users:
                self.server.sessions.end(self.cookie())
                # The browser forgets its copies as well.
                self.answer(303, b"", {"Clear-Site-Data": '"cache", "cookies"', "Location": "/"})
            else:
                self.answer(404)
        except redis.RedisError:
            self.answer(502)  # Not logged out, then: that is no success, and the session stays.

    def cookie(self):
        morsel = http.cookies.SimpleCookie(self.headers.get("Cookie", "")).get("session")
        return morsel.value if morsel else None

    def page(self, user):
        if user is None:
            body = '<form class="card" method="post" action="/sign-in"><h1>Contacts</h1>' \
                '<input name="user" value="alice@example.org" aria-label="user"><button>Sign in</button></form>'
            return PAGE.substitute(body=body).encode()
        cards = ""
        for name, profile in self.server.people:
            path = "/avatar/" + "/".join(urllib.parse.quote(part, safe="") for part in (user, profile))
            cards += f'<li><img src="{path}" alt=""><b>{html.escape(name)}</b><i>{html.escape(profile)}</i></li>'
        button = '<form method="post" action="/log-out"><button>Log out</button></form>'
        head = f"<header><b>{html.escape(user)}</b>{button}</header>"
        return PAGE.substitute(body=f"{head}<ul>{cards}</ul>").encode()

    def answer(self, status, body=b"", headers={}):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 304:  # The length there would be that of the image, which has not come.
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        """Nothing: whose pictures are looked at is nobody's business."""


if __name__ == "__main__":
    if len(sys.argv) < 2 or not sys.argv[1].isdecimal():
        sys.exit("usage: avatars.py PORT ['NAME <PROFILE>' ...]")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    server.people = [email.utils.parseaddr(word) for word in sys.argv[2:]]
    path = os.environ.get("THUMBCACHED_SOCKET", "/run/thumbcached/thumbcached.sock")
    try:
        server.sessions = Sessions(path)
    except redis.RedisError as error:
        sys.exit(f"avatars.py: cannot reach thumbcached at {path}: {error}; set THUMBCACHED_SOCKET to its socket")
    print(f"serving at http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
