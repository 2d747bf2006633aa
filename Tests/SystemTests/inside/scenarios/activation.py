"""Socket activation: no request fails while the service starts, restarts, reloads, or is upgraded."""

import pathlib
import tempfile

from commands import attempt, run, systemctl
from daemon import CONFIGURATION, UNIT
from resp import Client, Closed, ErrorReply, request
from waiting import check, wait_until

from scenarios.installation import PACKAGE

RESTARTS = 5


def on_demand(machine):
    """A request of redis-cli starts a stopped service and is answered"""
    systemctl("stop", UNIT)
    check(machine.daemon.state() == "inactive", "the service is not stopped")
    answer = run("redis-cli", "-s", "/run/thumbcached/thumbcached.sock", "PING").strip()
    check(answer == "PONG", f"the first request was answered with {answer!r}")
    # systemd may report the service as active only after the reply.
    wait_until("the service is active", machine.daemon.is_active)


def under_load(machine, change, times=1, is_orderly=True):
    """Applies a change to the service `times` times while three applications send requests. No request may fail, no image
    may be missing, and a GET must return the last image whose PUT was acknowledged; after an orderly stop, no connection
    may be reset.
    """
    alice, bob = machine.people.alice, machine.people.bob
    persistent = machine.people.login(alice, new_images=True)
    reconnecting = machine.people.login(bob, each=True, new_images=True)
    applications = [persistent, reconnecting, machine.people.login(bob, account="chat", new_images=True)]
    for _ in range(times):
        change()
        for application in applications:
            application.wait_for_hits()
            # Connections end with the daemon's process, so any number of them may be closed.
            application.check_no_failures(closed=None)
    for person in (alice, bob):
        check(machine.daemon.image_count(person) == 8, f"{person.name} is logged out, or images are missing")
    for application in applications:
        application.stop()
        application.check_no_failures(closed=None)
        resets = application.seen["resets"]
        check(not is_orderly or resets == 0, f"{application.name}: {resets} connections were reset: {application.seen}")
    slowest = max(application.seen["slowest"] for application in applications)
    machine.note(f"slowest request: {slowest:.2f} s")


def restart(machine):
    """F47: no request fails during restarts under load; users stay logged in and images are kept"""

    def change():
        before = machine.daemon.pid()
        systemctl("restart", UNIT)
        check(machine.daemon.pid() not in (0, before), "systemctl restart did not start a new process")

    under_load(machine, change, RESTARTS)


def kept(machine):
    """F72: during restarts and an upgrade, requests on open connections are answered or get SHUTTINGDOWN, never a
    reset"""

    def change():
        for _ in range(RESTARTS):
            systemctl("restart", UNIT)
        install(PACKAGE)

    under_load(machine, change, 2)


def stop(machine):
    """F47: after a stop under load, the next request starts the service again"""
    under_load(machine, lambda: systemctl("stop", UNIT), RESTARTS)


def kill(machine):
    """A killed daemon is started again and no request fails"""

    def change():
        before = machine.daemon.pid()
        run("kill", "-KILL", str(before))
        machine.daemon.wait_for_another_than(before)

    under_load(machine, change, 2, is_orderly=False)


def reload(machine):
    """F47: reloads under load neither fail a request nor close a connection"""
    alice = machine.people.alice
    application = machine.people.login(alice)
    before = machine.daemon.pid()
    cursor = machine.daemon.now()
    for level in ("debug", "info") * RESTARTS:
        machine.daemon.configure(f'[log]\nlevel = "{level}"\n')
        systemctl("reload", UNIT)
        application.wait_for_hits(10)
    application.check_no_failures(closed=0)
    machine.daemon.wait_for_journal(cursor, ["configuration reloaded"], UNIT)
    check(machine.daemon.pid() == before, "a reload started a new process")


def drained(machine):
    """F47: a stop answers pending requests with complete replies and sends STOPPING=1"""
    alice = machine.people.alice
    machine.people.login(alice).wait_for_hits()
    clients = [Client(alice.uid) for _ in range(8)]
    for client in clients:
        check(client.command("PING") == "PONG", "PING was not answered")
    cursor = machine.daemon.now()
    for client in clients:
        for _ in range(50):
            client.send("GET", "mail@alice.example", "contact-0")
    systemctl("stop", "--no-block", UNIT)
    for number, client in enumerate(clients):
        replies = 0
        try:
            while replies < 50:
                check(client.receive() is not None, "during a stop, a GET of a stored image was answered with nil")
                replies += 1
        except Closed as error:
            check("middle" not in str(error), f"connection {number}: partial reply after {replies} complete ones")
        except ErrorReply as error:
            check(error.code == "SHUTTINGDOWN", f"during a stop, a GET of a stored image was answered with {error}")
        client.close()
    machine.daemon.wait_for_journal(cursor, ["stopping"], UNIT)


def reinstall(machine):
    """No request fails while the same package is installed again under load; logins and images are kept"""
    under_load(machine, lambda: install(PACKAGE))


def upgrade(machine):
    """No request fails during an upgrade under load; logins, images and the edited configuration are kept, and the new
    program runs"""
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
    """Builds the package again with another version number."""
    unpacked(folder)
    return rebuilt(folder, version)


def unpacked(folder):
    """Extracts the package and returns the directory."""
    tree = folder / "tree"
    run("dpkg-deb", "--raw-extract", str(PACKAGE), str(tree))
    return tree


def rebuilt(folder, version):
    """Builds a package from the extracted directory with another version number."""
    tree = folder / "tree"
    control = tree / "DEBIAN/control"
    lines = [
        f"Version: {version}" if line.startswith("Version:") else line for line in control.read_text().splitlines()
    ]
    control.write_text("\n".join(lines) + "\n")
    package = folder / "other.deb"
    run("dpkg-deb", "--build", "--root-owner-group", "-Znone", str(tree), str(package))
    # apt reads packages as the user _apt.
    folder.chmod(0o755)
    return package


def queue(machine):
    """Requests sent while the service is down wait in the socket's queue and are answered after the next start"""
    systemctl("stop", UNIT)
    clients = [Client(machine.people.alice.uid) for _ in range(100)]
    for client in clients:
        client.send("PING")
    for client in clients:
        check(client.receive() == "PONG", "a queued request was not answered")
        client.close()
    wait_until("the service is active", machine.daemon.is_active)
    check(request("PING") == "PONG", "PING was not answered")
    check(attempt("systemctl", "--quiet", "is-failed", UNIT).returncode != 0, "the service failed")


SCENARIOS = [on_demand, queue, restart, kept, stop, kill, reload, drained, reinstall, upgrade]
