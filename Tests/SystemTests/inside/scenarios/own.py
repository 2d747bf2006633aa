"""A user's own daemon, run by the units of the user manager in addition to the system daemon."""

import contextlib
import pathlib
import pwd
import shutil

from commands import run, systemctl
from daemon import CONFIGURATION, SOCKET, UNIT
from images import make_image
from resp import Client, ErrorReply, request
from waiting import check, wait_until

from scenarios.confinement import ORIGIN, served
from scenarios.renderer import png

ACCOUNT = "own@alice.example"
# Runtime keys, so that a logout ends all logins; and a limit that shows whether the file is read.
FILE = '[storage]\nkeys = "runtime"\n\n[limits]\nid = 40\n'


def begins_and_ends_with_its_user(machine):
    """A user's own socket starts a daemon that runs as the user and reads the user's file; with runtime keys, a logout
    ends the daemon and its logins"""
    alice, bob = machine.people.alice, machine.people.bob
    with configured(machine, alice, FILE):
        session = machine.people.login(alice)
        own(alice, "start", SOCKET)
        check(show(alice, "ActiveState") == "inactive", "the daemon runs before the first connection")
        with Client(alice.uid, socket_of(alice)) as client:
            check(client.command("LOGIN", ACCOUNT) == "OK", "LOGIN failed")
            check(client.command("PUT", ACCOUNT, "bob", make_image("bob")) == "OK", "PUT failed")
            check(client.command("GET", ACCOUNT, "bob") == make_image("bob"), "GET returned another image")
            check(is_rejected(client, "LOGIN", "a" * 41), "the user's configuration file is not read")
        pid = int(show(alice, "MainPID"))
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        check(f"Uid:\t{alice.uid}\t{alice.uid}" in status, f"the daemon does not run as the user: {status}")
        check("NoNewPrivs:\t1" in status, "the daemon can gain privileges")
        users = request("USERS", uid=alice.uid)
        check(users == [b"mail@alice.example"], f"the system daemon lists the users {users}")
        try:
            Client(bob.uid, socket_of(alice)).close()
            check(False, "another user can connect to the daemon")
        except PermissionError:
            pass

        own(alice, "restart", UNIT)
        with Client(alice.uid, socket_of(alice)) as client:
            check(client.command("GET", ACCOUNT, "bob") == make_image("bob"), "an image is missing after a restart")
        pid = int(show(alice, "MainPID"))
        session.log_out()
        wait_until("the daemon has ended", lambda: not pathlib.Path(f"/proc/{pid}").exists())
        wait_until("alice's slice is inactive", alice.is_inactive)
        check(not pathlib.Path(socket_of(alice)).exists(), "the socket file remains after the logout")

        machine.people.login(alice)
        own(alice, "start", SOCKET)
        with Client(alice.uid, socket_of(alice)) as client:
            check(client.command("USERS") == [], "an account is still logged in after the logout")


def downloads_and_makes_sizes(machine):
    """A user's own daemon downloads images and renders other sizes within the confinement of its unit"""
    alice = machine.people.alice
    image = png(600)
    with served(image) as port, configured(machine, alice, ORIGIN.replace("{port}", str(port))):
        machine.people.login(alice)
        own(alice, "start", SOCKET)
        with Client(alice.uid, socket_of(alice)) as client:
            check(client.command("LOGIN", ACCOUNT) == "OK", "LOGIN failed")
            check(client.command("GET", ACCOUNT, "bob") == image, "GET returned another image")
            said = client.command("GET", ACCOUNT, "bob", "SIZE", "32", "META")
            meta = dict(zip(said[::2], said[1::2]))
            check(meta[b"rendered"] is not None and meta[b"width"] == 32, f"the size was not rendered: {meta}")
        status = pathlib.Path(f"/proc/{show(alice, 'MainPID')}/status").read_text()
        # The unit's filter and the daemon's own.
        filters = int(next(line for line in status.splitlines() if line.startswith("Seccomp_filters:")).split()[1])
        check(filters > 1, f"the daemon has {filters} seccomp filters")


def system_daemon_ignores_user_files(machine):
    """F50: the system daemon reads no user's configuration file, whatever its home directory or environment"""
    homes = [pathlib.Path(pwd.getpwnam("thumbcached").pw_dir) / ".config", pathlib.Path("/run/system-test-config")]
    systemctl("set-environment", f"XDG_CONFIG_HOME={homes[1]}", "HOME=/run")
    try:
        for home in homes:
            (home / "thumbcached").mkdir(parents=True)
            (home / "thumbcached/thumbcached.toml").write_text("not TOML\n", encoding="utf-8")
        cursor = machine.daemon.now()
        machine.daemon.restart()
        check(request("PING") == "PONG", "the daemon does not start")
        machine.daemon.wait_for_journal(cursor, ["configuration read", f"file={CONFIGURATION}"], UNIT)
        systemctl("reload", UNIT)
        run("thumbcached", "--check-config", env={"PATH": "/usr/bin", "XDG_CONFIG_HOME": str(homes[1])})
    finally:
        systemctl("unset-environment", "XDG_CONFIG_HOME", "HOME")
        for home in homes:
            shutil.rmtree(home)


@contextlib.contextmanager
def configured(machine, person, text):
    """Writes a person's configuration file; afterwards logs out all users and removes the daemon's files."""
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
    """Runs systemctl --user as a person."""
    words = ["env", f"XDG_RUNTIME_DIR=/run/user/{person.uid}", "systemctl", "--user", *words]
    return run("setpriv", f"--reuid={person.uid}", f"--regid={person.uid}", "--clear-groups", *words)


def show(person, name):
    return own(person, "show", "--property", name, "--value", UNIT).strip()


def socket_of(person):
    return f"/run/user/{person.uid}/thumbcached/thumbcached.sock"


def is_rejected(client, *words):
    try:
        client.command(*words)
    except ErrorReply:
        return True
    return False


SCENARIOS = [begins_and_ends_with_its_user, downloads_and_makes_sizes, system_daemon_ignores_user_files]
