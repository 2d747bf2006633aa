"""How tightly the units are confined, as the booted system sees them."""

import contextlib
import http.server
import re
import threading

from commands import attempt, run
from daemon import FETCHER, FETCHER_SOCKET, PATH, SOCKET, UNIT
from pictures import picture
from resp import ask
from waiting import check

EXPOSURE = {UNIT: 0.6, FETCHER: 1.3}
HOOK = "thumbcached-logout@2001.service"
HONOURED = "thumbcached-honoured@2001.service"
# What the service has no use for: ways to other processes' memory and identities, and to the kernel's keys.
FORBIDDEN = ["userfaultfd", "io_setup", "shmget", "add_key", "keyctl", "setuid", "setgroups"]
ORIGIN = """
[origins.default]
url = "http://localhost:{port}/{profile}"
allow-private-addresses = true
"""


def is_confined(machine):
    """systemd-analyze security rates the running service at 0.6 or lower, and what downloads at 1.3"""
    for unit, limit in EXPOSURE.items():
        overall = run("systemd-analyze", "security", "--no-pager", unit).splitlines()[-1]
        found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", overall)
        check(found is not None, f"systemd-analyze did not end with an exposure level but with: {overall}")
        machine.note(f"exposure of {unit}: {found[1]}")
        check(float(found[1]) <= limit, f"the exposure of {unit} is {found[1]}")


def is_valid(_):
    """systemd-analyze verify has nothing to say about any unit"""
    for unit in (UNIT, SOCKET, PATH, FETCHER, FETCHER_SOCKET, HOOK, HONOURED, "user-2001.slice"):
        ended = attempt("systemd-analyze", "verify", "--man=no", unit)
        said = [line for line in (ended.stdout + ended.stderr).splitlines() if "thumbcached" in line]
        check(ended.returncode == 0 and not said, f"{unit}: status {ended.returncode}: {' '.join(said)}")


def goes_without(_):
    """The services may make no system call that they have no use for"""
    for unit in EXPOSURE:
        allowed = run("systemctl", "show", "--property=SystemCallFilter", "--value", unit).split()
        check("epoll_wait" in allowed, f"these are no system calls that are allowed: {allowed[:5]}")
        found = [name for name in FORBIDDEN if name in allowed]
        check(not found, f"{unit} may call {', '.join(found)}")


def downloads(machine):
    """The confined service looks up a name and downloads from it"""
    alice = machine.people.alice
    image = picture("from the origin")
    with served(image) as port:
        machine.daemon.use(ORIGIN.replace("{port}", str(port)))
        ask("LOGIN", "mail@alice.example", uid=alice.uid)
        for number in range(20):
            got = ask("GET", "mail@alice.example", f"contact-{number}", uid=alice.uid)
            check(got == image, f"a download brought {got!r}")


@contextlib.contextmanager
def served(image):
    """An origin on the loopback that has one picture; its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802 — what the library calls
            self.send_response(200)
            self.send_header("Content-Type", "image/png")
            self.send_header("Content-Length", str(len(image)))
            self.end_headers()
            self.wfile.write(image)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


SCENARIOS = [is_confined, is_valid, goes_without, downloads]
