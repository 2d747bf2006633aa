"""The fetcher is a process with its own unit and user, and the daemon does not depend on it."""

import ctypes
import os
import pathlib
import pwd
import time

from commands import property_of, run, systemctl
from daemon import CACHE, FETCHER, FETCHER_PATH, FETCHER_SOCKET, PENDING, RUNTIME, STATE, UNIT
from images import make_image
from resp import PATH as CLIENTS
from resp import Closed, ErrorReply, error_code, request
from waiting import check, wait_until

from scenarios.confinement import ORIGIN, served

ACCOUNT = "mail@alice.example"
KILLS = 5
# Its number is the same on every architecture: landlock_create_ruleset(2).
LANDLOCK_CREATE_RULESET, LANDLOCK_VERSION = 444, 1
HOSTILE = "/opt/system-test/hostile.py"
# Paths that a compromised fetcher must neither read nor change.
WANTED = [STATE, CACHE, PENDING, RUNTIME, CLIENTS, "/etc/shadow", "/etc/", "/run/"]


def two_users(machine):
    """The daemon has no network; the fetcher has another user, no capabilities, and downloads on a miss"""
    image = make_image("from the origin")
    with served(image) as port:
        use(machine, port)
        check(request("GET", ACCOUNT, "contact-0", uid=machine.people.alice.uid) == image, "no image was downloaded")
        for unit, user in ((UNIT, "thumbcached"), (FETCHER, "thumbcached-fetcher")):
            uids = status_of(pid_of(unit), "Uid").split()
            check(uids == [str(pwd.getpwnam(user).pw_uid)] * 4, f"{unit} runs with uids {uids}")
            check(status_of(pid_of(unit), "CapEff") == "0" * 16, f"{unit} has capabilities")
        own = os.readlink("/proc/self/ns/net")
        check(os.readlink(f"/proc/{pid_of(UNIT)}/ns/net") != own, "the daemon is in the machine's network")
        check(os.readlink(f"/proc/{pid_of(FETCHER)}/ns/net") == own, "the fetcher is not in the machine's network")
        mode = FETCHER_PATH.stat()
        is_private = mode.st_mode & 0o777 == 0o600 and FETCHER_PATH.owner() == "thumbcached"
        check(is_private, "users other than thumbcached can connect to the fetcher")


def confined(machine):
    """Both services confine themselves in addition to their units, with Landlock where the kernel has it"""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION)
    machine.note(f"Landlock version {version}" if version > 0 else "the kernel has no Landlock")
    cursor = machine.daemon.now()
    with served(make_image("from the origin")) as port:
        use(machine, port)
        request("GET", ACCOUNT, "contact-0", uid=machine.people.alice.uid)
    run("journalctl", "--sync")
    lacks = [line for unit in (UNIT, FETCHER) for line in machine.daemon.messages(cursor, unit) if "confined" in line]
    machine.note("; ".join(lacks) or "no confinement is missing")
    # The daemon renames files between directories, which Landlock permits from version 2.
    check(version < 2 or not any("their modes alone" in line for line in lacks), f"Landlock is not used: {lacks}")


def killed(machine):
    """When the fetcher is killed, the daemon logs it, still serves hits, and downloads again for the next miss"""
    alice = machine.people.alice
    image = make_image("from the origin")
    with served(image) as port:
        use(machine, port)
        check(request("GET", ACCOUNT, "held", uid=alice.uid) == image, "no image was downloaded")
        daemon = machine.daemon.pid()
        for number in range(KILLS):
            before, cursor = pid_of(FETCHER), machine.daemon.now()
            systemctl("kill", "--signal=KILL", FETCHER)
            machine.daemon.wait_for_error(cursor, ["helper process failed", "fetcher"], UNIT)
            check(request("GET", ACCOUNT, "held", uid=alice.uid) == image, "a stored image is not served")
            wait_for_download(alice, f"contact-{number}", image)
            check(pid_of(FETCHER) not in (0, before), "no new fetcher runs")
        check(machine.daemon.pid() == daemon, "the daemon was restarted")
        check(property_of(FETCHER_SOCKET, "ActiveState") == "active", "the fetcher's socket is closed")


def goes_with_the_daemon(machine):
    """The fetcher stops with the daemon without failing; a restarted daemon has a new fetcher"""
    alice = machine.people.alice
    image = make_image("from the origin")
    with served(image) as port:
        use(machine, port)
        check(request("GET", ACCOUNT, "contact-0", uid=alice.uid) == image, "no image was downloaded")
        first = pid_of(FETCHER)
        systemctl("stop", UNIT)
        wait_until("the fetcher has ended", lambda: property_of(FETCHER, "ActiveState") == "inactive")
        check(property_of(FETCHER, "Result") == "success", "the fetcher failed")
        check(request("GET", ACCOUNT, "contact-1", uid=alice.uid) == image, "nothing is downloaded after a stop")
        second = pid_of(FETCHER)
        systemctl("restart", UNIT)
        wait_for_download(alice, "contact-2", image)
        check(len({0, first, second, pid_of(FETCHER)}) == 4, "a fetcher outlived its daemon")


def cannot_start(machine):
    """I9: while the fetcher cannot start, hits are served and restarts are slow; downloads resume once it can start"""
    alice = machine.people.alice
    image = make_image("from the origin")
    with served(image) as port:
        use(machine, port)
        check(request("GET", ACCOUNT, "held", uid=alice.uid) == image, "no image was downloaded")
        # The unit's NoExecPaths= forbids this program.
        machine.daemon.drop_in("[Service]\nExecStart=\nExecStart=/bin/false\n", FETCHER)
        began = time.monotonic()
        systemctl("kill", "--signal=KILL", FETCHER)
        wait_until("five starts have failed", lambda: int(property_of(FETCHER, "NRestarts")) >= 5)
        seconds = time.monotonic() - began
        machine.note(f"5 starts in {seconds:.1f} s")
        check(seconds > 3, f"a fetcher that cannot start was started 5 times in {seconds:.1f} s")
        check(request("GET", ACCOUNT, "held", uid=alice.uid) == image, "a stored image is not served")
        machine.daemon.remove_drop_in(FETCHER)
        wait_for_download(alice, "contact-0", image)
        check(property_of(FETCHER_SOCKET, "ActiveState") == "active", "the fetcher's socket is closed")


def without_socket(machine):
    """I9: while the fetcher's socket is closed, the daemon starts, serves hits and logs the error at intervals;
    downloads resume once the socket is open"""
    alice = machine.people.alice
    image = make_image("from the origin")
    with served(image) as port:
        use(machine, port)
        check(request("GET", ACCOUNT, "held", uid=alice.uid) == image, "no image was downloaded")
        cursor = machine.daemon.now()
        # Masked, because a start of the daemon would start it.
        systemctl("mask", "--runtime", "--now", FETCHER_SOCKET)
        try:
            systemctl("restart", UNIT)
            machine.daemon.wait_for_error(cursor, ["helper process failed", "connect to"], UNIT)
            check(request("GET", ACCOUNT, "held", uid=alice.uid) == image, "a stored image is not served")
            check(error_code("GET", ACCOUNT, "contact-0", uid=alice.uid) == "ORIGIN", "a miss has another error")
            lines = len(machine.daemon.messages(cursor, UNIT))
            check(lines < 50, f"the daemon wrote {lines} lines")
        finally:
            systemctl("unmask", "--runtime", FETCHER_SOCKET)
        systemctl("start", FETCHER_SOCKET)
        wait_for_download(alice, "contact-0", image)


def hostile(machine):
    """I1, I11: a compromised fetcher can access neither keys, images and clients nor the daemon; each attempt is
    refused"""
    alice = machine.people.alice
    machine.people.login(alice)
    daemon = machine.daemon.pid()
    uid = pwd.getpwnam("thumbcached").pw_uid
    words = ["/usr/bin/python3", "-B", HOSTILE, str(daemon), str(uid), *map(str, WANTED)]
    # Outside the unit, as root, each attempt succeeds: the attempts are effective.
    tries = lines_of(run(*words).splitlines())
    check(len(tries) > 20 and all(line.endswith("DONE") for line in tries), "refused to root: " + "; ".join(tries))
    program = os.path.realpath("/usr/bin/python3")
    cursor = machine.daemon.now()
    machine.daemon.drop_in(
        f"[Service]\nExecStart=\nExecStart={' '.join([program, *words[1:]])}\nExecPaths={program}\n", FETCHER
    )
    # Kill the running fetcher, so that the unit starts the hostile program.
    systemctl("kill", "--signal=KILL", FETCHER)
    machine.daemon.wait_for_journal(cursor, ["hostile: end"], FETCHER)
    said = lines_of(machine.daemon.messages(cursor, FETCHER))
    done = sorted({line for line in said if "refused" not in line})
    check(not done, "; ".join(done))
    missing = {subject(line) for line in tries} - {subject(line) for line in said}
    check(not missing, f"not attempted: {missing}")
    machine.note(f"{len(tries)} attempts, each refused")
    check(machine.daemon.pid() == daemon, "the daemon was restarted")
    check(machine.daemon.image_count(alice) == 8, "alice is logged out, or images are missing")
    systemctl("stop", FETCHER)


def use(machine, port):
    """Configures an origin and logs in alice."""
    machine.daemon.use(ORIGIN.replace("{port}", str(port)))
    request("LOGIN", ACCOUNT, uid=machine.people.alice.uid)


def wait_for_download(person, profile, image):
    """Waits until a GET downloads the image; ignores errors, which GET returns while no fetcher runs."""

    def is_there():
        try:
            return request("GET", ACCOUNT, profile, uid=person.uid) == image
        except (ErrorReply, Closed):
            return False

    wait_until(f"{profile} is downloaded", is_there)


def pid_of(unit):
    return int(property_of(unit, "MainPID"))


def status_of(pid, field):
    """Returns a field of the process status: proc_pid_status(5)."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{field}:"))


def lines_of(lines):
    """Returns the lines about attempts."""
    return [line for line in lines if line.startswith("hostile: ") and line != "hostile: end"]


def subject(line):
    return line.rsplit(": ", 1)[0]


SCENARIOS = [two_users, confined, killed, goes_with_the_daemon, cannot_start, without_socket, hostile]
