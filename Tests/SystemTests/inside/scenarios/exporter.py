"""What shows the figures over HTTP: in its unit it works, and can do nothing else."""

import http.client
import pathlib

from commands import attempt, property_of, systemctl
from daemon import CONFIGURATION, EXPORTER
from waiting import check, wait_until

PORT = 9420


def shows_figures(machine):
    """Enabled, it shows the figures to this machine, as a user who may read them and log nobody out"""
    check('\nobservers = ["thumbcached-exporter"]\n' in CONFIGURATION.read_text(), "the configuration names no observer")
    machine.daemon.start()
    systemctl("start", EXPORTER)
    try:
        wait_until("the exporter has asked the daemon", lambda: get("/metrics").endswith("\nthumbcached_up 1\n"))
        check("thumbcached_connections " in get("/metrics"), "METRICS is not in what it shows")
        wait_until("the page has the figures", lambda: "thumbcached: answers" in get("/"))
        # proc_net_tcp(5): the state is the fourth word, and 0A is LISTEN.
        sockets = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = [words[1] for words in sockets if words[3] == "0A" and words[1].endswith(f":{PORT:04X}")]
        check(listening == [f"0100007F:{PORT:04X}"], f"it listens at {listening}")
        pid = property_of(EXPORTER, "MainPID")
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        check("CapEff:\t0000000000000000" in status, "it has powers")
        # The same user, without the unit.
        denied = attempt("setpriv", "--reuid=thumbcached-exporter", "--regid=thumbcached-exporter", "--clear-groups",
                         "thumbcachectl", "logout", "--all", "--uid", str(machine.people.alice.uid))
        check("DENIED" in denied.stderr, f"it may log somebody out: {denied.stdout}{denied.stderr}")
    finally:
        systemctl("stop", EXPORTER)


def without_the_daemon(machine):
    """Without the daemon it says so, and shows figures again once the daemon is back"""
    machine.daemon.start()
    systemctl("start", EXPORTER)
    try:
        wait_until("the daemon answers", lambda: get("/metrics").endswith("\nthumbcached_up 1\n"))
        systemctl("stop", "thumbcached.path", "thumbcached.socket", "thumbcached.service")
        wait_until("the daemon does not answer", lambda: get("/metrics").endswith("\nthumbcached_up 0\n"))
        systemctl("start", "thumbcached.path", "thumbcached.socket")
        wait_until("the daemon answers again", lambda: get("/metrics").endswith("\nthumbcached_up 1\n"))
    finally:
        systemctl("stop", EXPORTER)


def get(path):
    """What it answers; nothing while it does not listen yet."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except ConnectionRefusedError:
        return ""
    finally:
        connection.close()


SCENARIOS = [shows_figures, without_the_daemon]
