"""The socket, which systemd holds: nobody is refused while the service starts, restarts, reloads, or is upgraded."""

import pathlib
import tempfile

from commands import attempt, run, systemctl
from daemon import CONFIGURATION, UNIT
from resp import Client, Closed, Refused, ask
from waiting import check, wait_until

from scenarios.installation import PACKAGE

RESTARTS = 5


def on_demand(machine):
    """Socket activation: a call of redis-cli starts a stopped service, and is answered"""
    systemctl("stop", UNIT)
    check(machine.daemon.state() == "inactive", "the service is not stopped")
    answer = run("redis-cli", "-s", "/run/thumbcached/thumbcached.sock", "PING").strip()
    check(answer == "PONG", f"the first call is answered with {answer!r}")
    # The answer may come before systemd has taken note of the start.
    wait_until("the service is active", machine.daemon.is_active)


def under_load(machine, change, times=1, is_orderly=True):
    """What is done to the service meets users with a session and load: none of their requests is refused, all images
    stay. Where it ends in order, no connection is reset, either."""
    alice, bob = machine.people.alice, machine.people.bob
    steady = machine.people.login(alice)
    hasty = machine.people.login(bob, each=True)
    applications = [steady, hasty, machine.people.login(bob, account="chat")]
    for _ in range(times):
        change()
        for application in applications:
            application.wait_for_hits()
            # Connections end with the process that served them; not one request is answered with an error or not found.
            application.check_well(closed=None)
    for person in (alice, bob):
        check(machine.daemon.held(person) == 8, f"{person.name} is not logged in any more, or images are missing")
    for application in applications:
        application.stop()
        application.check_well(closed=None)
        resets = application.seen["resets"]
        check(not is_orderly or resets == 0, f"{application.name} met {resets} resets: {application.seen}")
    slowest = max(application.seen["slowest"] for application in applications)
    machine.note(f"the slowest of all requests took {slowest:.2f} s")


def restart(machine):
    """F47: restarts under load: no request is refused, users stay logged in, images are kept"""

    def change():
        before = machine.daemon.pid()
        systemctl("restart", UNIT)
        check(machine.daemon.pid() not in (0, before), "systemctl restart did not start another process")

    under_load(machine, change, RESTARTS)


def kept(machine):
    """F72: kept connections that are busy through restarts and an upgrade: each request is answered, or it is said that
    it
    is not done, and none meets a reset"""

    def change():
        for _ in range(RESTARTS):
            systemctl("restart", UNIT)
        install(PACKAGE)

    under_load(machine, change, 2)


def stop(machine):
    """F47: stops under load: the next request starts the service again"""
    under_load(machine, lambda: systemctl("stop", UNIT), RESTARTS)


def kill(machine):
    """A daemon that is killed is started again, and nobody is refused meanwhile"""

    def change():
        before = machine.daemon.pid()
        run("kill", "-KILL", str(before))
        machine.daemon.wait_for_another_than(before)

    under_load(machine, change, 2, is_orderly=False)


def reload(machine):
    """F47: reloads under load disturb nobody, not even by closing a connection"""
    alice = machine.people.alice
    application = machine.people.login(alice)
    before = machine.daemon.pid()
    cursor = machine.daemon.now()
    for level in ("debug", "info") * RESTARTS:
        machine.daemon.configure(f'[log]\nlevel = "{level}"\n')
        systemctl("reload", UNIT)
        application.wait_for_hits(10)
    application.check_well(closed=0)
    machine.daemon.wait_for_journal(cursor, ["configuration read again"], UNIT)
    check(machine.daemon.pid() == before, "a reload is no restart, yet the process is another")


def drained(machine):
    """F47: a stop answers what has been asked: every reply is whole, and STOPPING=1 comes"""
    alice = machine.people.alice
    machine.people.login(alice).wait_for_hits()
    clients = [Client(alice.uid) for _ in range(8)]
    for client in clients:
        check(client.command("PING") == "PONG", "PING is not answered")
    cursor = machine.daemon.now()
    for client in clients:
        for _ in range(50):
            client.send("GET", "mail@alice.example", "contact-0")
    systemctl("stop", "--no-block", UNIT)
    for number, client in enumerate(clients):
        replies = 0
        try:
            while replies < 50:
                check(client.receive() is not None, "a stop made a hit a miss")
                replies += 1
        except Closed as error:
            check("middle" not in str(error), f"connection {number}: half a reply after {replies} whole ones")
        except Refused as error:
            check(error.code == "SHUTTINGDOWN", f"a stop answers a hit with {error}")
        client.close()
    machine.daemon.wait_for_journal(cursor, ["stopping"], UNIT)


def reinstall(machine):
    """Installing the same package again under load refuses nobody, and keeps log-ins and images"""
    under_load(machine, lambda: install(PACKAGE))


def upgrade(machine):
    """An upgrade under load refuses nobody, keeps log-ins, images and the edited configuration, and runs the new
    program"""
    edited = CONFIGURATION.read_text(encoding="utf-8") + "\n# edited by an administrator\n"
    before = machine.daemon.pid()
    version = installed_version()
    with tempfile.TemporaryDirectory() as folder:
        newer = repacked(pathlib.Path(folder), f"{version}+1")
        machine.daemon.configure(edited)
        under_load(machine, lambda: install(newer))
    check(installed_version() == f"{version}+1", "the newer version is not installed")
    check(CONFIGURATION.read_text(encoding="utf-8") == edited, "the upgrade changed the configuration")
    check(machine.daemon.pid() not in (0, before), "the old process still serves after the upgrade")
    install(PACKAGE)


def install(package):
    run(
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "install",
        "--yes",
        "--reinstall",
        "--allow-downgrades",
        "-o",
        "Dpkg::Options::=--force-confdef",
        "-o",
        "Dpkg::Options::=--force-confold",
        str(package),
    )


def installed_version():
    return run("dpkg-query", "--show", "--showformat=${Version}", "thumbcached")


def repacked(folder, version):
    """The package once more, as another version."""
    unpacked(folder)
    return rebuilt(folder, version)


def unpacked(folder):
    """The package's tree, to be changed."""
    tree = folder / "tree"
    run("dpkg-deb", "--raw-extract", str(PACKAGE), str(tree))
    return tree


def rebuilt(folder, version):
    """A package of the tree in there, as another version."""
    tree = folder / "tree"
    control = tree / "DEBIAN/control"
    lines = [
        f"Version: {version}" if line.startswith("Version:") else line for line in control.read_text().splitlines()
    ]
    control.write_text("\n".join(lines) + "\n")
    package = folder / "other.deb"
    run("dpkg-deb", "--build", "--root-owner-group", "-Znone", str(tree), str(package))
    # apt reads packages as a user of its own.
    folder.chmod(0o755)
    return package


def queue(machine):
    """Calls that come while the service is down wait in the socket's queue: a crowd of them is answered by the next
    start"""
    systemctl("stop", UNIT)
    clients = [Client(machine.people.alice.uid) for _ in range(100)]
    for client in clients:
        client.send("PING")
    for client in clients:
        check(client.receive() == "PONG", "a call that waited is not answered")
        client.close()
    wait_until("the service is active", machine.daemon.is_active)
    check(ask("PING") == "PONG", "PING is not answered")
    check(attempt("systemctl", "--quiet", "is-failed", UNIT).returncode != 0, "the service failed")


SCENARIOS = [on_demand, queue, restart, kept, stop, kill, reload, drained, reinstall, upgrade]
