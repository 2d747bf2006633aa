"""What downloads is a process and a unit of its own, and no more than a guest."""

import ctypes
import os
import pathlib
import pwd
import time

from commands import property_of, run, systemctl
from daemon import CACHE, FETCHER, FETCHER_PATH, FETCHER_SOCKET, PENDING, RUNTIME, STATE, UNIT
from pictures import picture
from resp import PATH as CLIENTS
from resp import Closed, Refused, ask, error_code
from waiting import check, wait_until

from scenarios.confinement import ORIGIN, served

ACCOUNT = "mail@alice.example"
KILLS = 5
# Has the same number on every architecture: landlock_create_ruleset(2).
LANDLOCK_CREATE_RULESET, LANDLOCK_VERSION = 444, 1
HOSTILE = "/opt/system-test/hostile.py"
# What somebody who has broken in would like to look at or to change.
WANTED = [STATE, CACHE, PENDING, RUNTIME, CLIENTS, "/etc/shadow", "/etc/", "/run/"]


def two_users(machine):
    """Two users: what keeps images has no network, what downloads them has nothing else, and a GET that misses brings
    one"""
    image = picture("from the origin")
    with served(image) as port:
        use(machine, port)
        check(ask("GET", ACCOUNT, "contact-0", uid=machine.people.alice.uid) == image, "the download brought no image")
        for unit, user in ((UNIT, "thumbcached"), (FETCHER, "thumbcached-fetcher")):
            uids = status_of(pid_of(unit), "Uid").split()
            check(uids == [str(pwd.getpwnam(user).pw_uid)] * 4, f"{unit} runs with the uids {uids}")
            check(status_of(pid_of(unit), "CapEff") == "0" * 16, f"{unit} has powers")
        own = os.readlink("/proc/self/ns/net")
        check(os.readlink(f"/proc/{pid_of(UNIT)}/ns/net") != own, "the daemon is in the machine's network")
        check(os.readlink(f"/proc/{pid_of(FETCHER)}/ns/net") == own, "the fetcher is in another network")
        mode = FETCHER_PATH.stat()
        check(mode.st_mode & 0o777 == 0o600 and FETCHER_PATH.owner() == "thumbcached", "others may ask the fetcher")


def confined(machine):
    """Within their units both services also confine themselves, by Landlock where the kernel has it"""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION)
    machine.note(f"Landlock of version {version}" if version > 0 else "the kernel has no Landlock")
    cursor = machine.daemon.now()
    with served(picture("from the origin")) as port:
        use(machine, port)
        ask("GET", ACCOUNT, "contact-0", uid=machine.people.alice.uid)
    run("journalctl", "--sync")
    lacks = [line for unit in (UNIT, FETCHER) for line in machine.daemon.messages(cursor, unit) if "confined" in line]
    machine.note("; ".join(lacks) or "nothing is lacking")
    # A daemon renames files from one directory into another, which takes the second version.
    check(version < 2 or not any("their modes alone" in line for line in lacks), f"Landlock is not used: {lacks}")


def killed(machine):
    """A fetcher that is killed costs what it was at: the daemon says so, what is held is served, and the next GET is
    answered"""
    alice = machine.people.alice
    image = picture("from the origin")
    with served(image) as port:
        use(machine, port)
        check(ask("GET", ACCOUNT, "held", uid=alice.uid) == image, "the download brought no image")
        daemon = machine.daemon.pid()
        for number in range(KILLS):
            before, cursor = pid_of(FETCHER), machine.daemon.now()
            systemctl("kill", "--signal=KILL", FETCHER)
            machine.daemon.wait_for_error(cursor, ["the process that downloads has ended"], UNIT)
            check(ask("GET", ACCOUNT, "held", uid=alice.uid) == image, "what is held is not served")
            wait_for_download(alice, f"contact-{number}", image)
            check(pid_of(FETCHER) not in (0, before), "no other process downloads")
        check(machine.daemon.pid() == daemon, "the daemon was started again")
        check(property_of(FETCHER_SOCKET, "ActiveState") == "active", "the fetcher's socket is closed")


def goes_with_the_daemon(machine):
    """A stop of the daemon ends the fetcher, which is not failed; a restart has another one"""
    alice = machine.people.alice
    image = picture("from the origin")
    with served(image) as port:
        use(machine, port)
        check(ask("GET", ACCOUNT, "contact-0", uid=alice.uid) == image, "the download brought no image")
        first = pid_of(FETCHER)
        systemctl("stop", UNIT)
        wait_until("the fetcher has ended", lambda: property_of(FETCHER, "ActiveState") == "inactive")
        check(property_of(FETCHER, "Result") == "success", "the fetcher failed")
        check(ask("GET", ACCOUNT, "contact-1", uid=alice.uid) == image, "after a stop nothing is downloaded")
        second = pid_of(FETCHER)
        systemctl("restart", UNIT)
        wait_for_download(alice, "contact-2", image)
        check(len({0, first, second, pid_of(FETCHER)}) == 4, "a process that downloads outlived its daemon")


def cannot_start(machine):
    """I9: a fetcher that cannot be started: what is held is served, the machine is not busy with it, and once it can be
    nobody has to do anything"""
    alice = machine.people.alice
    image = picture("from the origin")
    with served(image) as port:
        use(machine, port)
        check(ask("GET", ACCOUNT, "held", uid=alice.uid) == image, "the download brought no image")
        # NoExecPaths= refuses it.
        machine.daemon.drop_in("[Service]\nExecStart=\nExecStart=/bin/false\n", FETCHER)
        began = time.monotonic()
        systemctl("kill", "--signal=KILL", FETCHER)
        wait_until("it was tried five times", lambda: int(property_of(FETCHER, "NRestarts")) >= 5)
        seconds = time.monotonic() - began
        machine.note(f"5 tries in {seconds:.1f} s")
        check(seconds > 3, f"a fetcher that cannot start is tried 5 times in {seconds:.1f} s")
        check(ask("GET", ACCOUNT, "held", uid=alice.uid) == image, "what is held is not served")
        machine.daemon.remove_drop_in(FETCHER)
        wait_for_download(alice, "contact-0", image)
        check(property_of(FETCHER_SOCKET, "ActiveState") == "active", "the fetcher's socket is closed")


def without_socket(machine):
    """I9: somebody has closed the fetcher's socket: the daemon starts, serves what is held, and says what is missing
    now and then; once the socket is open nobody has to do anything else"""
    alice = machine.people.alice
    image = picture("from the origin")
    with served(image) as port:
        use(machine, port)
        check(ask("GET", ACCOUNT, "held", uid=alice.uid) == image, "the download brought no image")
        cursor = machine.daemon.now()
        # A start of the daemon would open it.
        systemctl("mask", "--runtime", "--now", FETCHER_SOCKET)
        try:
            systemctl("restart", UNIT)
            machine.daemon.wait_for_error(cursor, ["the process that downloads has ended", "it cannot be had"], UNIT)
            check(ask("GET", ACCOUNT, "held", uid=alice.uid) == image, "what is held is not served")
            check(error_code("GET", ACCOUNT, "contact-0", uid=alice.uid) == "ORIGIN", "a download has another error")
            lines = len(machine.daemon.messages(cursor, UNIT))
            check(lines < 50, f"the daemon wrote {lines} lines")
        finally:
            systemctl("unmask", "--runtime", FETCHER_SOCKET)
        systemctl("start", FETCHER_SOCKET)
        wait_for_download(alice, "contact-0", image)


def hostile(machine):
    """I1, I11: whoever has broken into the fetcher reaches neither keys nor images, neither clients nor the daemon:
    each try is refused"""
    alice = machine.people.alice
    machine.people.login(alice)
    daemon = machine.daemon.pid()
    uid = pwd.getpwnam("thumbcached").pw_uid
    words = ["/usr/bin/python3", "-B", HOSTILE, str(daemon), str(uid), *map(str, WANTED)]
    # Without the unit each of them does what it is to do: they are tries.
    tries = lines_of(run(*words).splitlines())
    check(len(tries) > 20 and all(line.endswith("DONE") for line in tries), "root is refused: " + "; ".join(tries))
    program = os.path.realpath("/usr/bin/python3")
    cursor = machine.daemon.now()
    machine.daemon.drop_in(
        f"[Service]\nExecStart=\nExecStart={' '.join([program, *words[1:]])}\nExecPaths={program}\n", FETCHER
    )
    # The next one is the other program.
    systemctl("kill", "--signal=KILL", FETCHER)
    machine.daemon.wait_for_journal(cursor, ["hostile: end"], FETCHER)
    said = lines_of(machine.daemon.messages(cursor, FETCHER))
    done = sorted({line for line in said if "refused" not in line})
    check(not done, "; ".join(done))
    missing = {subject(line) for line in tries} - {subject(line) for line in said}
    check(not missing, f"not tried: {missing}")
    machine.note(f"{len(tries)} tries, each refused")
    check(machine.daemon.pid() == daemon, "the daemon was started again")
    check(machine.daemon.held(alice) == 8, "alice is not logged in any more, or images are missing")
    systemctl("stop", FETCHER)


def use(machine, port):
    """Serves with an origin, and with alice logged in."""
    machine.daemon.use(ORIGIN.replace("{port}", str(port)))
    ask("LOGIN", ACCOUNT, uid=machine.people.alice.uid)


def wait_for_download(person, profile, image):
    """A GET that misses brings the image. While no fetcher is there its callers are told so."""

    def is_there():
        try:
            return ask("GET", ACCOUNT, profile, uid=person.uid) == image
        except (Refused, Closed):
            return False

    wait_until(f"{profile} is downloaded", is_there)


def pid_of(unit):
    return int(property_of(unit, "MainPID"))


def status_of(pid, field):
    """What the kernel says of a process: proc_pid_status(5)."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{field}:"))


def lines_of(lines):
    """Those on tries."""
    return [line for line in lines if line.startswith("hostile: ") and line != "hostile: end"]


def subject(line):
    return line.rsplit(": ", 1)[0]


SCENARIOS = [two_users, confined, killed, goes_with_the_daemon, cannot_start, without_socket, hostile]
