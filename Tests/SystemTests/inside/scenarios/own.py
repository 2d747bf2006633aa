"""A daemon of one's own, by the units of a user's manager, beside the machine's."""

import contextlib
import pathlib
import pwd
import shutil

from commands import run, systemctl
from daemon import CONFIGURATION, SOCKET, UNIT
from pictures import picture
from resp import Client, Refused, ask
from waiting import check, wait_until

from scenarios.confinement import ORIGIN, served
from scenarios.renderer import png

ACCOUNT = "own@alice.example"
# With what a log-out ends, and with a limit that shows that it is read.
FILE = '[storage]\nkeys = "runtime"\n\n[limits]\nid = 40\n'


def begins_and_ends_with_its_user(machine):
    """A user's own socket starts a daemon that is the user's alone and goes by the user's file; the log-out ends it,
    and with runtime keys what it held"""
    alice, bob = machine.people.alice, machine.people.bob
    with configured(machine, alice, FILE):
        session = machine.people.login(alice)
        own(alice, "start", SOCKET)
        check(show(alice, "ActiveState") == "inactive", "the daemon runs before anybody has called")
        with Client(alice.uid, socket_of(alice)) as client:
            check(client.command("LOGIN", ACCOUNT) == "OK", "no log-in")
            check(client.command("PUT", ACCOUNT, "bob", picture("bob")) == "OK", "no picture is kept")
            check(client.command("GET", ACCOUNT, "bob") == picture("bob"), "another picture is served")
            check(is_refused(client, "LOGIN", "a" * 41), "the user's own file is not read")
        pid = int(show(alice, "MainPID"))
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        check(f"Uid:\t{alice.uid}\t{alice.uid}" in status, f"the daemon is not the user's: {status}")
        check("NoNewPrivs:\t1" in status, "the daemon may gain rights")
        users = ask("USERS", uid=alice.uid)
        check(users == [b"mail@alice.example"], f"the machine's daemon knows {users}")
        try:
            Client(bob.uid, socket_of(alice)).close()
            check(False, "another user reaches it")
        except PermissionError:
            pass

        own(alice, "restart", UNIT)
        with Client(alice.uid, socket_of(alice)) as client:
            check(client.command("GET", ACCOUNT, "bob") == picture("bob"), "a restart loses a picture")
        pid = int(show(alice, "MainPID"))
        session.log_out()
        wait_until("the daemon has ended with its user", lambda: not pathlib.Path(f"/proc/{pid}").exists())
        wait_until("alice is away", alice.is_away)
        check(not pathlib.Path(socket_of(alice)).exists(), "there is a socket of somebody who is away")

        machine.people.login(alice)
        own(alice, "start", SOCKET)
        with Client(alice.uid, socket_of(alice)) as client:
            check(client.command("USERS") == [], "who was logged in is so after the log-out")


def downloads_and_makes_sizes(machine):
    """A user's own daemon downloads, and has pictures of other sizes made, within what its unit lets it do"""
    alice = machine.people.alice
    image = png(600)
    with served(image) as port, configured(machine, alice, ORIGIN.replace("{port}", str(port))):
        machine.people.login(alice)
        own(alice, "start", SOCKET)
        with Client(alice.uid, socket_of(alice)) as client:
            check(client.command("LOGIN", ACCOUNT) == "OK", "no log-in")
            check(client.command("GET", ACCOUNT, "bob") == image, "the download brought something else")
            said = client.command("GET", ACCOUNT, "bob", "SIZE", "32", "META")
            meta = dict(zip(said[::2], said[1::2]))
            check(meta[b"rendered"] is not None and meta[b"width"] == 32, f"the size was not made: {meta}")
        status = pathlib.Path(f"/proc/{show(alice, 'MainPID')}/status").read_text()
        # The unit's filter, beside the daemon's own.
        filters = int(next(line for line in status.splitlines() if line.startswith("Seccomp_filters:")).split()[1])
        check(filters > 1, f"the daemon has {filters} filters of system calls")


def is_no_way_to_the_machines_daemon(machine):
    """F50: the machine's daemon reads no person's file, wherever its account or its environment would lead it"""
    homes = [pathlib.Path(pwd.getpwnam("thumbcached").pw_dir) / ".config", pathlib.Path("/run/system-test-config")]
    systemctl("set-environment", f"XDG_CONFIG_HOME={homes[1]}", "HOME=/run")
    try:
        for home in homes:
            (home / "thumbcached").mkdir(parents=True)
            (home / "thumbcached/thumbcached.toml").write_text("no TOML\n", encoding="utf-8")
        cursor = machine.daemon.now()
        machine.daemon.restart()
        check(ask("PING") == "PONG", "the daemon does not start")
        machine.daemon.wait_for_journal(cursor, ["configuration read", f"file={CONFIGURATION}"], UNIT)
        systemctl("reload", UNIT)
        run("thumbcached", "--check-config", env={"PATH": "/usr/bin", "XDG_CONFIG_HOME": str(homes[1])})
    finally:
        systemctl("unset-environment", "XDG_CONFIG_HOME", "HOME")
        for home in homes:
            shutil.rmtree(home)


@contextlib.contextmanager
def configured(machine, person, text):
    """A person has a file of their own; afterwards everybody is away, and nothing of it is left."""
    home = pathlib.Path("/home") / person.name
    file = home / ".config/thumbcached/thumbcached.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    run("chown", "--recursive", f"{person.name}:", str(home / ".config"))
    try:
        yield
    finally:
        machine.people.end_all()
        for folder in (".config", ".cache/thumbcached", ".local/state/thumbcached"):
            shutil.rmtree(home / folder, ignore_errors=True)


def own(person, *words):
    """systemctl, of a person's own manager."""
    words = ["env", f"XDG_RUNTIME_DIR=/run/user/{person.uid}", "systemctl", "--user", *words]
    return run("setpriv", f"--reuid={person.uid}", f"--regid={person.uid}", "--clear-groups", *words)


def show(person, name):
    return own(person, "show", "--property", name, "--value", UNIT).strip()


def socket_of(person):
    return f"/run/user/{person.uid}/thumbcached/thumbcached.sock"


def is_refused(client, *words):
    try:
        client.command(*words)
    except Refused:
        return True
    return False


SCENARIOS = [begins_and_ends_with_its_user, downloads_and_makes_sizes, is_no_way_to_the_machines_daemon]
