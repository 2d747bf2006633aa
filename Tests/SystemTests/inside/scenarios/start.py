"""Failing starts: the error names the cause, nothing is served, and the next start with the cause removed succeeds."""

import pathlib
import shutil

from commands import attempt, property_of, run, systemctl
from daemon import CONFIGURATION, PENDING, RUNTIME, SOCKET, STATE, UNIT
from images import make_image
from resp import PATH, request
from waiting import check, wait_until

from scenarios.logout import hook

BAD = [
    ("thread = 1\n", "thumbcached.toml: thread: unknown key"),
    ("\n[storage]\nquota = 5\n", "thumbcached.toml: storage.quota"),
    ('threads = 1\n\n[limits]\nstall = "soon"\n', "thumbcached.toml: limits.stall"),
    ("[limits\n", "thumbcached.toml:1"),
]


def refuse_to_start(machine, words):
    """Checks that the service does not start and that the journal has the error."""
    systemctl("stop", UNIT)
    cursor = machine.daemon.now()
    attempt("systemctl", "start", UNIT)
    check(not machine.daemon.is_active(), f"the service started; expected the error: {words}")
    machine.daemon.wait_for_error(cursor, [words], UNIT)


def bad_configuration(machine):
    """F50: an invalid configuration fails the start; the journal names key, line and reason"""
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
    check(request("PING") == "PONG", "the daemon does not start with a valid configuration")


def bad_reload(machine):
    """F50: a reload of an invalid configuration fails, logs the reason, and keeps the old one without interruption"""
    application = machine.people.login(machine.people.alice)
    before = machine.daemon.pid()
    for text, words in BAD:
        machine.daemon.configure(text)
        cursor = machine.daemon.now()
        ended = attempt("systemctl", "reload", UNIT)
        check(ended.returncode != 0, f"systemctl reload accepted an invalid configuration: {words}")
        machine.daemon.wait_for_error(cursor, [words], UNIT)
        application.wait_for_hits(10)
        application.check_no_failures(closed=0)
    check(machine.daemon.pid() == before, "a failed reload ended the process")
    check(machine.daemon.is_active(), f"after a failed reload the service is {machine.daemon.state()}")


def check_of_the_configuration(machine):
    """F50: thumbcached --check-config has the same result as a start of the service, for any caller, and names the
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
            check((reloaded.returncode == 0) == is_good, f"{where}: the service has another result")
    finally:
        secret.unlink()


TOKEN_ENDPOINT = """[origins.default]
url = "https://images.example.org/{profile}"

[origins.default.token]
endpoint = "https://login.example.org/token"
client-id = "thumbcached"
"""


def log_out_of_a_broken_daemon(machine):
    """F46: if the daemon cannot start, the hook leaves a pending-logout file and fails; the next start processes the
    file first and clears the failure"""
    alice, bob = machine.people.alice, machine.people.bob
    session = machine.people.login(alice)
    machine.people.login(bob).wait_for_hits()
    machine.daemon.configure("thread = 1\n")
    systemctl("stop", UNIT)
    cursor = machine.daemon.now()
    session.log_out()
    wait_until("the hook has failed", lambda: property_of(hook(alice), "Result") not in ("success", ""))
    check(len(machine.daemon.pending_files(alice.uid)) == 1, f"pending: {machine.daemon.pending_files()}")
    machine.daemon.wait_for_error(cursor, [f"left {PENDING}/"], hook(alice))
    check(hook(alice) in failures(), f"systemctl --failed does not show the hook: {failures()}")
    check(machine.daemon.keys(alice.uid), "this scenario requires that keys still exist")

    machine.daemon.use("")
    check_ended_except_pending(machine, alice)
    wait_until("the pending-logout file is removed", lambda: not machine.daemon.pending_files())
    check(machine.daemon.image_count(bob) == 8, "the logout of one uid deleted images of another")
    wait_until("the hook is no longer marked as failed", lambda: hook(alice) not in failures())


def failures():
    """Returns the failed units of thumbcached."""
    return run("systemctl", "list-units", "--failed", "--plain", "--no-legend", "thumbcached*")


def check_ended_except_pending(machine, person):
    """Checks that the keys are deleted before the first request is answered; image files are deleted afterwards."""
    check(machine.daemon.image_count(person) is None, f"{person.name} is still logged in after a pending logout")
    check(not machine.daemon.keys(person.uid), f"keys remain: {machine.daemon.keys(person.uid)}")
    wait_until("the directories are deleted", lambda: not machine.daemon.traces(person.uid))


def hook_itself_fails(machine):
    """F46: a logout that fails without a pending-logout file is logged and stays failed"""
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
        machine.daemon.wait_for_journal(cursor, ["thumbcachectl", "pending-logout file"], hook(alice))
        check(machine.daemon.pending_files() == [], "a pending-logout file exists in a read-only directory")
    finally:
        run("umount", str(PENDING))
    systemctl("start", SOCKET)
    machine.daemon.start()
    unit = f"thumbcached-pending-logout@{alice.uid}.service"
    wait_until("the pending-logout unit is inactive", lambda: property_of(unit, "ActiveState") == "inactive")
    check(hook(alice) in failures(), "a logout that was neither completed nor recorded is not marked as failed")


def stale_socket(machine):
    """F49: the socket unit replaces a stale socket file"""
    pid = machine.daemon.pid()
    run("kill", "-KILL", str(pid))
    machine.daemon.wait_for_another_than(pid)
    systemctl("stop", UNIT, SOCKET)
    run("python3", "-c", f"import socket; socket.socket(socket.AF_UNIX).bind({PATH!r})")
    check(pathlib.Path(PATH).is_socket(), "this scenario needs a stale socket")
    systemctl("start", SOCKET)
    check(request("PING") == "PONG", "PING was not answered")


def taken_path(machine):
    """F49: a directory at the socket's path is kept and named in the journal"""
    systemctl("stop", UNIT, SOCKET)
    pathlib.Path(PATH).mkdir()
    cursor = machine.daemon.now()
    check(attempt("systemctl", "start", SOCKET).returncode != 0, "the socket unit started although its path exists")
    machine.daemon.wait_for_journal(cursor, ["listen"], SOCKET)
    check(pathlib.Path(PATH).is_dir(), "the directory has been removed")
    pathlib.Path(PATH).rmdir()
    systemctl("reset-failed", SOCKET)
    systemctl("start", SOCKET)
    check(request("PING") == "PONG", "PING was not answered")


def second_daemon(machine):
    """F44, F49: a second daemon fails and names the lock in use; the service continues"""
    application = machine.people.login(machine.people.alice)
    words = ["setpriv", "--reuid=thumbcached", "--regid=thumbcached", "--clear-groups", "env"]
    words += [
        "CACHE_DIRECTORY=/var/cache/thumbcached",
        "STATE_DIRECTORY=/var/lib/thumbcached",
        f"RUNTIME_DIRECTORY={RUNTIME}",
    ]
    ended = attempt(*words, "/usr/bin/thumbcached", timeout=60)
    check(ended.returncode == 1, f"the second daemon ended with status {ended.returncode}")
    check("another thumbcached uses the" in ended.stderr, f"the second daemon wrote: {ended.stderr}")
    application.wait_for_hits()
    application.check_no_failures(closed=0)


def damaged_names_key(machine):
    """F51: a missing or damaged names.key causes an error or an empty store, never a mixed one"""
    alice = machine.people.alice
    for damage in (missing, shortened, flipped):
        # Without a session: its end would log out, and its application would start the service.
        request("LOGIN", "mail@alice.example", uid=alice.uid)
        request("PUT", "mail@alice.example", "contact-0", make_image("alice's"), uid=alice.uid)
        check(machine.daemon.keys(alice.uid), "this scenario needs keys")
        systemctl("stop", UNIT)
        damage(STATE / "names.key")
        cursor = machine.daemon.now()
        started = attempt("systemctl", "start", UNIT).returncode == 0
        machine.daemon.wait_for_journal(cursor, ["names.key"], UNIT)
        machine.note(f"{damage.__name__}: " + ("starts with an empty store" if started else "does not start"))
        if not started:
            machine.daemon.forget_everything()
            machine.daemon.restart()
        check(machine.daemon.image_count(alice) is None, f"names.key {damage.__name__}: the old login still exists")
        check(not machine.daemon.keys(alice.uid), f"names.key {damage.__name__}: old keys remain")


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
