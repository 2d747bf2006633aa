"""thumbcached-http in its unit: it serves metrics over HTTP and has no other privileges."""

import http.client
import pathlib

from commands import attempt, property_of, systemctl
from daemon import CONFIGURATION, HTTP
from waiting import check, wait_until

PORT = 9420
SETTINGS = pathlib.Path("/etc/thumbcached/http.toml")


def shows_metrics(machine):
    """Once enabled, the HTTP service serves metrics on loopback, as a user who can read them but log out no other user"""
    check("\nobservers = " not in CONFIGURATION.read_text(), "the configuration sets observers")
    machine.daemon.start()
    SETTINGS.write_text(f'figures.listen = "127.0.0.1:{PORT}"\n')
    systemctl("start", HTTP)
    try:
        wait_until("the HTTP service has queried the daemon", lambda: get("/metrics").endswith("\nthumbcached_up 1\n"))
        check("thumbcached_connections " in get("/metrics"), "/metrics lacks the counters of METRICS")
        wait_until("the page shows the daemon's status", lambda: "thumbcached: up" in get("/"))
        # proc_net_tcp(5): the state is the fourth word, and 0A is LISTEN.
        sockets = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = [words[1] for words in sockets if words[3] == "0A" and words[1].endswith(f":{PORT:04X}")]
        check(listening == [f"0100007F:{PORT:04X}"], f"the HTTP service listens at {listening}")
        pid = property_of(HTTP, "MainPID")
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        check("CapEff:\t0000000000000000" in status, "the HTTP service has capabilities")
        # The same user, without the unit.
        denied = attempt("setpriv", "--reuid=thumbcached-http", "--regid=thumbcached-http", "--clear-groups",
                         "thumbcachectl", "logout", "--all", "--uid", str(machine.people.alice.uid))
        check("DENIED" in denied.stderr, f"the HTTP service's user may log out others: {denied.stdout}{denied.stderr}")
    finally:
        systemctl("stop", HTTP)
        SETTINGS.unlink()


def without_the_daemon(machine):
    """thumbcached-http reports that the daemon is down, and serves its metrics again when it is back"""
    machine.daemon.start()
    SETTINGS.write_text(f'figures.listen = "127.0.0.1:{PORT}"\n')
    systemctl("start", HTTP)
    try:
        wait_until("the daemon answers", lambda: get("/metrics").endswith("\nthumbcached_up 1\n"))
        systemctl("stop", "thumbcached.path", "thumbcached.socket", "thumbcached.service")
        wait_until("the daemon does not answer", lambda: get("/metrics").endswith("\nthumbcached_up 0\n"))
        systemctl("start", "thumbcached.path", "thumbcached.socket")
        wait_until("the daemon answers again", lambda: get("/metrics").endswith("\nthumbcached_up 1\n"))
    finally:
        systemctl("stop", HTTP)
        SETTINGS.unlink()


def get(path):
    """Returns the body of a response; empty while the HTTP service does not listen yet."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except ConnectionRefusedError:
        return ""
    finally:
        connection.close()


SCENARIOS = [shows_metrics, without_the_daemon]
