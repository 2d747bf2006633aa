"""Sends requests to the web service of examples/web and checks the responses.

    web_service.py PORT SOCKET IMAGE

The origin must have IMAGE for bob@example.org and none for nobody@example.org. Exits with 0 if all responses are
correct.
"""

import hashlib
import http.client
import pathlib
import subprocess
import sys

port, socket, image = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]).read_bytes()
tag = f'"{hashlib.sha256(image).hexdigest()}"'
BOB = "/avatar/alice%40example.org/bob%40example.org"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
checks = 0


def request(method, path, headers={}, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    return response.status, response.read(), response.headers


def check(what, got, expected):
    global checks
    checks += 1
    if got != expected:
        sys.exit(f"{what}: got {got!r}, not {expected!r}")


def sign_in(user):
    status, _, headers = request("POST", "/sign-in", FORM, f"user={user}")
    check("sign-in", (status, headers["Location"]), (303, "/"))
    check("the cookie's attributes", headers["Set-Cookie"].split("; ")[1:], ["Path=/", "HttpOnly", "SameSite=Strict"])
    return {"Cookie": headers["Set-Cookie"].split(";")[0]}


def users():
    reply = subprocess.run(["redis-cli", "-e", "-s", socket, "USERS"], check=True, capture_output=True, text=True)
    return reply.stdout.split()


check("image without a session", request("GET", BOB)[0], 401)
check("page without a session", "Sign in" in request("GET", "/")[1].decode(), True)
alice = sign_in("alice%40example.org")
page = request("GET", "/", alice)
check("page", ("Log out" in page[1].decode(), BOB in page[1].decode()), (True, True))
check("Cache-Control of the page", page[2]["Cache-Control"], "no-store")

status, body, headers = request("GET", BOB, alice)
check("image", (status, body == image, headers["Content-Type"]), (200, True, "image/png"))
check("ETag and Cache-Control", (headers["ETag"], headers["Cache-Control"]), (tag, "private, no-cache"))
for known in (tag, f"W/{tag}", f'"another", {tag}'):
    status, body, headers = request("GET", BOB, alice | {"If-None-Match": known})
    check("conditional request", (status, body, headers["ETag"]), (304, b"", tag))
    check("Content-Length of a 304", headers["Content-Length"], None)
other_tag = {"If-None-Match": f'"{"0" * 64}"'}
check("conditional request with another tag", request("GET", BOB, alice | other_tag)[:2], (200, image))
check("missing image", request("GET", BOB.replace("bob", "nobody"), alice)[0], 404)
check("invalid path", request("GET", "/avatar/x", alice)[0], 404)

# Other users get no image of alice's contacts. A logout ends one of alice's two sessions.
eve = sign_in("eve")
check("image of another user", request("GET", BOB, eve)[0], 401)
second = sign_in("alice%40example.org")
status, _, headers = request("POST", "/logout", alice)
check("logout", (status, headers["Clear-Site-Data"]), (303, '"cache", "cookies"'))
check("image after the logout", request("GET", BOB, alice)[0], 401)
check("second session", request("GET", BOB, second)[:2], (200, image))
check("users", sorted(users()), ["alice@example.org", "eve"])
check("logout of the second session", request("POST", "/logout", second)[0], 303)
check("users after both logouts", users(), ["eve"])
check("logout without a session", request("POST", "/logout")[0], 404)

# After a logout by another program, the page asks the user to sign in.
check("page of eve", "Log out" in request("GET", "/", eve)[1].decode(), True)
subprocess.run(["redis-cli", "-e", "-s", socket, "LOGOUT", "eve"], check=True, stdout=subprocess.DEVNULL)
check("image after eve's logout", request("GET", "/avatar/eve/bob", eve)[0], 401)
check("page after eve's logout", "Sign in" in request("GET", "/", eve)[1].decode(), True)
print(f"{checks} responses were correct")
