#!/usr/bin/env python3
"""A small web service that shows images from thumbcached to browsers (apt install python3-redis).

    avatars.py PORT 'NAME <PROFILE>' …

A user signs in, sees the contacts, and logs out; after that, neither the service nor the browser has the images.
It listens on 127.0.0.1. THUMBCACHED_SOCKET names the daemon's socket. The client is the Python package in
clients/python: PYTHONPATH=clients/python/src.
"""

import email.utils
import html
import http.cookies
import http.server
import pathlib
import re
import secrets
import string
import sys
import threading
import urllib.parse

import thumbcache

PAGE = string.Template((pathlib.Path(__file__).parent / "page.html").read_text())
# All other errors are 502.
STATUS = {thumbcache.NotLoggedInError: 401, thumbcache.BusyError: 503, thumbcache.OriginTimeoutError: 504}


class Sessions:
    """The signed-in users, by the secret in their cookie."""

    def __init__(self):
        self.users, self.lock = {}, threading.Lock()
        self.daemon = thumbcache.Client()
        # Sessions end with this connection, even if the service crashes.
        self.holding = thumbcache.Client(single_connection=True)

    def begin(self, user):
        secret = secrets.token_urlsafe()
        with self.lock:
            self.holding.login(user, session=secret, hold=True)
            self.users[secret] = user
        return secret

    def end(self, secret):
        """Ends a session. The user's cache ends with the last session."""
        self.daemon.logout(self.users[secret], session=secret)
        self.users.pop(secret, None)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        user = self.server.sessions.users.get(self.cookie())
        path = self.path.split("/")
        if self.path == "/":
            self.answer(200, self.page(user), {"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store"})
        elif len(path) == 4 and path[1] == "avatar":
            # The path contains the user, so that browsers do not mix up images of different users.
            owner, profile = map(urllib.parse.unquote, path[2:])
            self.avatar(user, profile) if owner == user else self.answer(401)
        else:
            self.answer(404)

    def avatar(self, user, profile):
        # The ETag is the image's digest; the daemon need not send an unchanged image.
        known = re.search(r'"([0-9a-f]{64})"', self.headers.get("If-None-Match", ""))
        try:
            image = self.server.sessions.daemon.get_image(user, profile, unless=known and known[1])
        except thumbcache.ThumbcacheError as error:
            if isinstance(error, thumbcache.NotLoggedInError):  # Logged out by another program.
                self.server.sessions.users.pop(self.cookie(), None)
            return self.answer(STATUS.get(type(error), 502))
        # private: only this browser may store it. no-cache: it revalidates before use, so a logout takes effect.
        headers = {"Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff"}
        if image is None:
            return self.answer(404, b"", headers)
        if image is thumbcache.UNCHANGED:
            return self.answer(304, b"", headers | {"ETag": known[0]})
        self.answer(200, image.image, headers | {"ETag": f'"{image.digest}"', "Content-Type": image.type})

    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
        try:
            if self.path == "/sign-in" and "user" in form:
                # A real service authenticates the user here; this example accepts any name.
                secret = self.server.sessions.begin(form["user"][0])
                cookie = {"Set-Cookie": f"session={secret}; Path=/; HttpOnly; SameSite=Strict"}
                self.answer(303, b"", cookie | {"Location": "/"})
            elif self.path == "/logout" and self.cookie() in self.server.sessions.users:
                self.server.sessions.end(self.cookie())
                # The browser discards its copies.
                self.answer(303, b"", {"Clear-Site-Data": '"cache", "cookies"', "Location": "/"})
            else:
                self.answer(404)
        except thumbcache.ThumbcacheError:
            self.answer(502)  # The logout failed, so the session remains.

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
            initials = html.escape("".join(word[0] for word in name.split())[:2].upper())
            cards += f'<li><span class="avatar">{initials}<img src="{path}" alt="" onerror="this.remove()"></span>' \
                f'<b>{html.escape(name)}</b><i>{html.escape(profile)}</i></li>'
        button = '<form method="post" action="/logout"><button>Log out</button></form>'
        head = f"<header><b>{html.escape(user)}</b>{button}</header>"
        return PAGE.substitute(body=f"{head}<ul>{cards}</ul>").encode()

    def answer(self, status, body=b"", headers={}):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 304:  # A 304 has no body.
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        """Logs nothing, since paths contain users and profiles."""


if __name__ == "__main__":
    if len(sys.argv) < 2 or not sys.argv[1].isdecimal():
        sys.exit("usage: avatars.py PORT ['NAME <PROFILE>' ...]")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    server.people = [email.utils.parseaddr(word) for word in sys.argv[2:]]
    try:
        server.sessions = Sessions()
    except thumbcache.ThumbcacheError as error:
        sys.exit(f"avatars.py: cannot reach thumbcached: {error}; set THUMBCACHED_SOCKET to its socket")
    print(f"serving at http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
