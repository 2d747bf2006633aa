"""Starts that cannot be: what is in the way is named, nothing is served that must not be, and the next good start mends
it."""

import pathlib
import shutil

from commands import attempt, property_of, run, systemctl
from daemon import CONFIGURATION, PENDING, RUNTIME, SOCKET, STATE, UNIT
from pictures import picture
from resp import PATH, ask
from waiting import check, wait_until

from scenarios.logout import hook

BAD = [
    ("thread = 1\n", "thumbcached.toml: thread: unknown key"),
    ("\n[storage]\nquota = 5\n", "thumbcached.toml: storage.quota"),
    ('threads = 1\n\n[limits]\nstall = "soon"\n', "thumbcached.toml: limits.stall"),
    ("[limits\n", "thumbcached.toml:1"),
]


def refuse_to_start(machine, words):
    """The service does not come up, and the journal says why, as an error."""
    systemctl("stop", UNIT)
    cursor = machine.daemon.now()
    attempt("systemctl", "start", UNIT)
    check(not machine.daemon.is_active(), f"the service started although it must say: {words}")
    machine.daemon.wait_for_error(cursor, [words], UNIT)


def bad_configuration(machine):
    """F50: a bad configuration stops the start; key, line and reason are in the journal"""
    for text, words in BAD:
        machine.daemon.configure(text)
        refuse_to_start(machine, words)
    machine.daemon.configure("")
    CONFIGURATION.chmod(0)
    try:
        refuse_to_start(machine, "thumbcached.toml")
    finally:
        CONFIGURATION.chmod(0o644)
    machine.daemon.restart()
    check(ask("PING") == "PONG", "with a good configuration it does not start")


def bad_reload(machine):
    """F50: a reload of a bad configuration fails, keeps the old one, says why, and disturbs nobody"""
    application = machine.people.login(machine.people.alice)
    before = machine.daemon.pid()
    for text, words in BAD:
        machine.daemon.configure(text)
        cursor = machine.daemon.now()
        ended = attempt("systemctl", "reload", UNIT)
        check(ended.returncode != 0, f"systemctl reload took a configuration for good that is not: {words}")
        machine.daemon.wait_for_error(cursor, [words], UNIT)
        application.wait_for_hits(10)
        application.check_well(closed=0)
    check(machine.daemon.pid() == before, "a bad reload ended the process")
    check(machine.daemon.is_active(), f"after a bad reload the service is {machine.daemon.state()}")


def check_of_the_configuration(machine):
    """F50: thumbcached --check-config judges as the service would read, whoever calls it from wherever, and names the
    file"""
    secret = CONFIGURATION.parent / "secret"
    secret.write_text("s3cret\n", encoding="utf-8")
    machine.daemon.configure(f'{TOKEN_ENDPOINT}client-secret-file = "{secret}"\n')
    try:
        for mode, group, is_good in ((0o600, "root", False), (0o640, "root", False), (0o640, "thumbcached", True)):
            shutil.chown(secret, "root", group)
            secret.chmod(mode)
            ended = attempt("env", "-i", "/usr/bin/thumbcached", "--check-config")
            said = ended.stdout + ended.stderr
            where = f"a secret of mode {mode:o} and group {group}: status {ended.returncode}: {said}"
            check((ended.returncode == 0) == is_good, where)
            check(str(CONFIGURATION if is_good else secret) in said, where)
            reloaded = attempt("systemctl", "reload-or-restart", UNIT)
            check((reloaded.returncode == 0) == is_good, f"{where}: the service sees it otherwise")
    finally:
        secret.unlink()


TOKEN_ENDPOINT = """[origins.default]
url = "https://pictures.example.org/{profile}"

[origins.default.token]
endpoint = "https://login.example.org/token"
client-id = "thumbcached"
"""


def log_out_of_a_broken_daemon(machine):
    """F46: where the daemon cannot start, the hook leaves a marker and fails visibly; the next good start honours it
    first, and the failure goes"""
    alice, bob = machine.people.alice, machine.people.bob
    session = machine.people.login(alice)
    machine.people.login(bob).wait_for_hits()
    machine.daemon.configure("thread = 1\n")
    systemctl("stop", UNIT)
    cursor = machine.daemon.now()
    session.log_out()
    wait_until("the hook has failed", lambda: property_of(hook(alice), "Result") not in ("success", ""))
    check(len(machine.daemon.markers(alice.uid)) == 1, f"the markers are {machine.daemon.markers()}")
    machine.daemon.wait_for_error(cursor, ["left the marker", str(PENDING)], hook(alice))
    check(hook(alice) in failures(), f"systemctl --failed does not show the hook: {failures()}")
    check(machine.daemon.keys(alice.uid), "this scenario is about images that are still there")

    machine.daemon.use("")
    check_ended_but_for_markers(machine, alice)
    wait_until("the marker is removed", lambda: not machine.daemon.markers())
    check(machine.daemon.held(bob) == 8, "the log-out of one uid touched another")
    wait_until("the log-out does not count as failed any more", lambda: hook(alice) not in failures())


def failures():
    """What `systemctl --failed` shows of ours."""
    return run("systemctl", "list-units", "--failed", "--plain", "--no-legend", "thumbcached*")


def check_ended_but_for_markers(machine, person):
    """Right after the start: keys are gone before anybody is served; what they sealed is deleted behind."""
    check(machine.daemon.held(person) is None, f"{person.name} is logged in after a log-out that waited")
    check(not machine.daemon.keys(person.uid), f"there are keys: {machine.daemon.keys(person.uid)}")
    wait_until("the directories are deleted", lambda: not machine.daemon.traces(person.uid))


def hook_itself_fails(machine):
    """F46: a log-out that cannot be done, and for which no marker can be left, fails, says so, and stays failed"""
    alice = machine.people.alice
    session = machine.people.login(alice)
    systemctl("stop", UNIT, SOCKET)
    run("mount", "--bind", "-o", "ro", str(PENDING), str(PENDING))
    run("mount", "-o", "remount,bind,ro", str(PENDING))
    cursor = machine.daemon.now()
    try:
        session.log_out()
        wait_until("the hook has failed", lambda: property_of(hook(alice), "Result") not in ("success", ""))
        machine.daemon.wait_for_error(cursor, ["thumbcachectl"], hook(alice))
        machine.daemon.wait_for_journal(cursor, ["thumbcachectl", "marker"], hook(alice))
        check(machine.daemon.markers() == [], "there is a marker in a directory that is read-only")
    finally:
        run("umount", str(PENDING))
    systemctl("start", SOCKET)
    machine.daemon.start()
    unit = f"thumbcached-honoured@{alice.uid}.service"
    wait_until("nobody waits for a marker", lambda: property_of(unit, "ActiveState") == "inactive")
    check(hook(alice) in failures(), "a log-out that was neither done nor left to the daemon does not count as failed")


def stale_socket(machine):
    """F49: a socket file that nobody serves is taken over by the socket unit"""
    pid = machine.daemon.pid()
    run("kill", "-KILL", str(pid))
    machine.daemon.wait_for_another_than(pid)
    systemctl("stop", UNIT, SOCKET)
    run("python3", "-c", f"import socket; socket.socket(socket.AF_UNIX).bind({PATH!r})")
    check(pathlib.Path(PATH).is_socket(), "this scenario needs a stale socket")
    systemctl("start", SOCKET)
    check(ask("PING") == "PONG", "the socket does not answer")


def taken_path(machine):
    """F49: a directory in the socket's place is left alone, and named in the journal"""
    systemctl("stop", UNIT, SOCKET)
    pathlib.Path(PATH).mkdir()
    cursor = machine.daemon.now()
    check(attempt("systemctl", "start", SOCKET).returncode != 0, "the socket unit started although its path is taken")
    machine.daemon.wait_for_journal(cursor, ["listen"], SOCKET)
    check(pathlib.Path(PATH).is_dir(), "what was in the way has been removed")
    pathlib.Path(PATH).rmdir()
    systemctl("reset-failed", SOCKET)
    systemctl("start", SOCKET)
    check(ask("PING") == "PONG", "the socket does not answer")


def second_daemon(machine):
    """F44, F49: a second daemon that somebody starts by hand says what is in its way, and the service goes on"""
    application = machine.people.login(machine.people.alice)
    words = ["setpriv", "--reuid=thumbcached", "--regid=thumbcached", "--clear-groups", "env"]
    words += [
        "CACHE_DIRECTORY=/var/cache/thumbcached",
        "STATE_DIRECTORY=/var/lib/thumbcached",
        f"RUNTIME_DIRECTORY={RUNTIME}",
    ]
    ended = attempt(*words, "/usr/bin/thumbcached", timeout=60)
    check(ended.returncode == 1, f"a second daemon ends with status {ended.returncode}")
    check("another thumbcached uses the" in ended.stderr, f"a second daemon says: {ended.stderr}")
    application.wait_for_hits()
    application.check_well(closed=0)


def damaged_names_key(machine):
    """F51: a names.key that is missing or wrong is a clear error or an empty store, never a mix of old and new"""
    alice = machine.people.alice
    for damage in (missing, shortened, flipped):
        # Without a session, whose end would log out, and whose applications would start the service.
        ask("LOGIN", "mail@alice.example", uid=alice.uid)
        ask("PUT", "mail@alice.example", "contact-0", picture("alice's"), uid=alice.uid)
        check(machine.daemon.keys(alice.uid), "this scenario needs keys")
        systemctl("stop", UNIT)
        damage(STATE / "names.key")
        cursor = machine.daemon.now()
        started = attempt("systemctl", "start", UNIT).returncode == 0
        machine.daemon.wait_for_journal(cursor, ["names.key"], UNIT)
        machine.note(f"{damage.__name__}: " + ("it starts with an empty store" if started else "it does not start"))
        if not started:
            machine.daemon.forget_everything()
            machine.daemon.restart()
        check(machine.daemon.held(alice) is None, f"names.key {damage.__name__}: the old log-in is served")
        check(not machine.daemon.keys(alice.uid), f"names.key {damage.__name__}: old keys are left")


def missing(path):
    path.unlink()


def shortened(path):
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path):
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(bytes(content))


SCENARIOS = [
    bad_configuration,
    bad_reload,
    check_of_the_configuration,
    log_out_of_a_broken_daemon,
    hook_itself_fails,
    stale_socket,
    taken_path,
    second_daemon,
    damaged_names_key,
]
