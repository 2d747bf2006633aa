"""The confinement of the units, as systemd reports it."""

import contextlib
import http.server
import re
import threading

from commands import attempt, run
from daemon import FETCHER, FETCHER_SOCKET, PATH, SOCKET, UNIT
from images import make_image
from resp import request
from waiting import check

EXPOSURE = {UNIT: 0.6, FETCHER: 1.3}
HOOK = "thumbcached-logout@2001.service"
PENDING_LOGOUT = "thumbcached-pending-logout@2001.service"
# System calls that the services do not need, such as those that reach other processes' memory or the kernel's keys.
FORBIDDEN = ["userfaultfd", "io_setup", "shmget", "add_key", "keyctl", "setuid", "setgroups"]
ORIGIN = """
[origins.default]
url = "http://localhost:{port}/{profile}"
allow-private-addresses = true
"""


def is_confined(machine):
    """systemd-analyze security rates the daemon at 0.6 or lower and the fetcher at 1.3 or lower"""
    for unit, limit in EXPOSURE.items():
        overall = run("systemd-analyze", "security", "--no-pager", unit).splitlines()[-1]
        found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", overall)
        check(found is not None, f"systemd-analyze did not end with an exposure level but with: {overall}")
        machine.note(f"exposure of {unit}: {found[1]}")
        check(float(found[1]) <= limit, f"the exposure of {unit} is {found[1]}")


def is_valid(_):
    """systemd-analyze verify reports nothing about any unit"""
    for unit in (UNIT, SOCKET, PATH, FETCHER, FETCHER_SOCKET, HOOK, PENDING_LOGOUT, "user-2001.slice"):
        ended = attempt("systemd-analyze", "verify", "--man=no", unit)
        said = [line for line in (ended.stdout + ended.stderr).splitlines() if "thumbcached" in line]
        check(ended.returncode == 0 and not said, f"{unit}: status {ended.returncode}: {' '.join(said)}")


def has_no_unneeded_system_calls(_):
    """The services may not make system calls that they do not need"""
    for unit in EXPOSURE:
        allowed = run("systemctl", "show", "--property=SystemCallFilter", "--value", unit).split()
        check("epoll_wait" in allowed, f"this is not a list of permitted system calls: {allowed[:5]}")
        found = [name for name in FORBIDDEN if name in allowed]
        check(not found, f"{unit} may call {', '.join(found)}")


def downloads(machine):
    """The confined service resolves a name and downloads an image"""
    alice = machine.people.alice
    image = make_image("from the origin")
    with served(image) as port:
        machine.daemon.use(ORIGIN.replace("{port}", str(port)))
        request("LOGIN", "mail@alice.example", uid=alice.uid)
        for number in range(20):
            got = request("GET", "mail@alice.example", f"contact-{number}", uid=alice.uid)
            check(got == image, f"the download returned {got!r}")


@contextlib.contextmanager
def served(image):
    """Runs an origin on loopback that serves one image for every path; yields its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802 — named by the base class
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


SCENARIOS = [is_confined, is_valid, has_no_unneeded_system_calls, downloads]
