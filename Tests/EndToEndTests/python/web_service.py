"""Asks the web service of examples/web what a browser asks, and what it must not tell.

    web_service.py PORT SOCKET PICTURE

PICTURE is what the daemon's origin has for bob@example.org; of nobody@example.org it has none. Ends with status 0 when
every answer was right.
"""

import hashlib
import http.client
import pathlib
import subprocess
import sys

port, socket, picture = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]).read_bytes()
tag = f'"{hashlib.sha256(picture).hexdigest()}"'
BOB = "/avatar/alice%40example.org/bob%40example.org"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
checks = 0


def ask(method, path, headers={}, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.headers


def check(what, got, expected):
    global checks
    checks += 1
    if got != expected:
        sys.exit(f"{what}: got {got!r}, not {expected!r}")


def sign_in(user):
    status, _, headers = ask("POST", "/sign-in", FORM, f"user={user}")
    check("signing in", (status, headers["Location"]), (303, "/"))
    check("the cookie's attributes", headers["Set-Cookie"].split("; ")[1:], ["Path=/", "HttpOnly", "SameSite=Strict"])
    return {"Cookie": headers["Set-Cookie"].split(";")[0]}


def users():
    said = subprocess.run(["redis-cli", "-e", "-s", socket, "USERS"], check=True, capture_output=True, text=True)
    return said.stdout.split()


check("a stranger's picture", ask("GET", BOB)[0], 401)
check("a stranger's page", "Sign in" in ask("GET", "/")[1].decode(), True)
alice = sign_in("alice%40example.org")
page = ask("GET", "/", alice)
check("the page", ("Log out" in page[1].decode(), BOB in page[1].decode()), (True, True))
check("the page is not kept", page[2]["Cache-Control"], "no-store")

status, body, headers = ask("GET", BOB, alice)
check("the picture", (status, body == picture, headers["Content-Type"]), (200, True, "image/png"))
check("what it says of itself", (headers["ETag"], headers["Cache-Control"]), (tag, "private, no-cache"))
for known in (tag, f"W/{tag}", f'"another", {tag}'):
    status, body, headers = ask("GET", BOB, alice | {"If-None-Match": known})
    check("the picture that is known", (status, body, headers["ETag"]), (304, b"", tag))
    check("its length is not told to be 0", headers["Content-Length"], None)
check("another is known", ask("GET", BOB, alice | {"If-None-Match": f'"{"0" * 64}"'})[:2], (200, picture))
check("nobody's picture", ask("GET", BOB.replace("bob", "nobody"), alice)[0], 404)
check("anything else", ask("GET", "/avatar/x", alice)[0], 404)

# Others see nothing of alice, and alice in a second browser stays when she logs out in the first.
eve = sign_in("eve")
check("another user's picture", ask("GET", BOB, eve)[0], 401)
second = sign_in("alice%40example.org")
status, _, headers = ask("POST", "/log-out", alice)
check("the log-out", (status, headers["Clear-Site-Data"]), (303, '"cache", "cookies"'))
check("behind it", ask("GET", BOB, alice)[0], 401)
check("the second browser", ask("GET", BOB, second)[:2], (200, picture))
check("logged in", sorted(users()), ["alice@example.org", "eve"])
check("the second log-out", ask("POST", "/log-out", second)[0], 303)
check("logged in still", users(), ["eve"])
check("a log-out without a session", ask("POST", "/log-out")[0], 404)

# Logged out elsewhere: the page asks to sign in again.
check("page", "Log out" in ask("GET", "/", eve)[1].decode(), True)
subprocess.run(["redis-cli", "-e", "-s", socket, "LOGOUT", "eve"], check=True, stdout=subprocess.DEVNULL)
check("her picture", ask("GET", "/avatar/eve/bob", eve)[0], 401)
check("her page", "Sign in" in ask("GET", "/", eve)[1].decode(), True)
print(f"{checks} answers were right")
