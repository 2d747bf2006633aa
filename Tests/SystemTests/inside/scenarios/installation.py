"""The packages are installed in the running system: what each of them sets up, alone and over an older version."""

import pathlib
import re
import tempfile

from commands import attempt, property_of, run, systemctl
from daemon import (
    CACHE,
    CONFIGURATION,
    EXPORTER,
    FETCHER,
    FETCHER_SOCKET,
    PATH,
    RENDERER_SOCKET,
    SOCKET,
    STATE,
    UNIT,
)
from machine import EXCHANGE
from waiting import check, wait_until

PACKAGE = EXCHANGE / "thumbcached.deb"
RENDERER_PACKAGE = EXCHANGE / "thumbcached-renderer.deb"
EXPORTER_PACKAGE = EXCHANGE / "thumbcached-exporter.deb"
FLEET_PACKAGE = EXCHANGE / "thumbcached-fleet.deb"
PACKAGES = [PACKAGE, RENDERER_PACKAGE, EXPORTER_PACKAGE, FLEET_PACKAGE]
USERS = ["thumbcached", "thumbcached-fetcher", "thumbcached-exporter", "thumbcached-relay", "thumbcached-oidc"]
# A pattern of the programs' command lines, for pgrep.
PROGRAMS = "^/usr/(bin/thumbcached|libexec/thumbcached-)"


def apt(command, *packages):
    """Runs apt-get without a network and returns its output."""
    return run(
        "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", command, "--yes", "--no-install-recommends",
        "--option=Dpkg::Options::=--force-confold", *map(str, packages),
    )


def alone(machine):
    """The daemon, the renderer, the exporter and the fleet each install without the others that they do not need, and
    are purged without a trace"""
    for packages, units, programs in (
        ([PACKAGE], [SOCKET, PATH, FETCHER_SOCKET], ["bin/thumbcached", "bin/thumbcachectl"]),
        ([PACKAGE, RENDERER_PACKAGE], [RENDERER_SOCKET], ["libexec/thumbcached-renderer"]),
        ([PACKAGE, EXPORTER_PACKAGE], [], ["bin/thumbcached-exporter"]),
        ([FLEET_PACKAGE], [], ["libexec/thumbcached-relay", "libexec/thumbcached-oidc"]),
    ):
        apt("install", *packages)
        names = [package.stem for package in packages]
        check(sorted(installed()) == sorted(names), f"{names} installed {installed()}")
        for unit in units:
            check(property_of(unit, "ActiveState") == "active", f"{unit} is not active after {names} were installed")
        for program in programs:
            check(run(f"/usr/{program}", "--help"), f"{program} prints no help")
        for unit in run("systemctl", "list-unit-files", "--plain", "--no-legend", "thumbcached*.service").splitlines():
            check("enabled" not in unit.split()[1:2], f"{names} enabled {unit}")
        purge()


def upgrades(machine):
    """Over the single package of 0.1.0-1, the packages keep enabled services, and the daemon's alone stops the others"""
    machine.people.make()
    services = (EXPORTER, "thumbcached-relay.service")
    with tempfile.TemporaryDirectory() as folder:
        single = single_package(pathlib.Path(folder))
        for packages, remain in ((PACKAGES, True), ([PACKAGE], False)):
            apt("install", single)
            for user in USERS:
                check(attempt("id", user).returncode == 0, f"the single package made no user {user}")
            pathlib.Path("/etc/thumbcached/relay.toml").write_text('redis.address = "127.0.0.1:1"\n')
            # Only the relay and the exporter run; the socket is what the upgrade must not close.
            systemctl("enable", "--now", UNIT, *services)
            machine.people.login(machine.people.alice)
            inode = pathlib.Path("/run/thumbcached/thumbcached.sock").stat().st_ino
            apt("install", *packages)
            check(pathlib.Path("/run/thumbcached/thumbcached.sock").stat().st_ino == inode, "the socket was replaced")
            check(property_of(UNIT, "ActiveState") == "active", "the daemon does not run after the upgrade")
            for service in services:
                state, file = property_of(service, "ActiveState"), property_of(service, "UnitFileState")
                expected = ("active", "enabled") if remain else ("inactive", "")
                check((state, file) == expected, f"{service} is {state} and {file!r} after the upgrade to {packages}")
            machine.people.end_all()
            if not remain:
                # Nothing purges what an administrator wrote for a package that was never installed.
                pathlib.Path("/etc/thumbcached/relay.toml").unlink()
            purge()


def installed(*other_states):
    """The packages that are installed, or in one of the other states of dpkg-query(1)."""
    lines = run("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", "thumbcached*").splitlines()
    return [name for name, state in map(str.split, lines) if state in ("installed", *other_states)]


def purge():
    """Purges all packages and checks that nothing is left."""
    packages = installed("config-files")
    said = apt("purge", *packages)
    check("warning" not in said.lower(), f"purging {packages}: {said}")
    for user in USERS:
        check(attempt("id", user).returncode != 0, f"the user {user} is left after purging {packages}")
    wait_until("no program of the packages runs", lambda: attempt("pgrep", "--full", PROGRAMS).returncode != 0)
    left = run("find", "/etc", "/usr", "/var/lib", "/var/cache", "/run", "-xdev", "-name", "*thumbcache*").split()
    left = [path for path in left if "/system-test/" not in path and "/lib/dpkg/" not in path]
    check(not left, f"left after purging {packages}: {left}")


def single_package(folder):
    """A package with the files and scripts of thumbcached, thumbcached-exporter and thumbcached-fleet, as 0.1.0-1 was."""
    tree = folder / "tree"
    scripts = {}
    for package in (PACKAGE, EXPORTER_PACKAGE, FLEET_PACKAGE):
        run("dpkg-deb", "--extract", str(package), str(tree))
        control = folder / package.stem
        run("dpkg-deb", "--control", str(package), str(control))
        for script in ("postinst", "prerm", "postrm"):
            if (control / script).exists():
                scripts.setdefault(script, []).append((control / script).read_text())
    (folder / "thumbcached").rename(tree / "DEBIAN")
    control = (tree / "DEBIAN/control").read_text()
    (tree / "DEBIAN/control").write_text(re.sub(r"^Version: .*", "Version: 0.1.0-1", control, flags=re.MULTILINE))
    for script, texts in scripts.items():
        # Each in a shell of its own, since a script may exit.
        whole = "#!/bin/sh\nset -e\n" + "".join(f"(\n{text}\n)\n" for text in texts)
        (tree / "DEBIAN" / script).write_text(whole)
        (tree / "DEBIAN" / script).chmod(0o755)
    package = folder / "single.deb"
    run("dpkg-deb", "--build", "--root-owner-group", "-Znone", str(tree), str(package))
    # apt reads packages as a user of its own.
    folder.chmod(0o755)
    return package


def installs(machine):
    """The packages install together, with their users, their directories, and a socket that answers"""
    for user in USERS:
        check(attempt("id", user).returncode != 0, f"the user {user} is there before the package is")
    apt("install", *PACKAGES)
    for user in USERS:
        check(attempt("id", user).returncode == 0, f"the package made no user {user}")
    check(CONFIGURATION.is_file(), f"there is no {CONFIGURATION}")
    for unit in (SOCKET, PATH, FETCHER_SOCKET, RENDERER_SOCKET):
        check(property_of(unit, "ActiveState") == "active", f"{unit} is not active after the installation")
        check(property_of(unit, "UnitFileState") == "enabled", f"{unit} would not be active after a boot")
    # It listens at a port: whoever wants that says so.
    check(property_of(EXPORTER, "UnitFileState") == "disabled", f"{EXPORTER} would be started by a boot")
    check(property_of(EXPORTER, "ActiveState") == "inactive", f"{EXPORTER} is active after the installation")
    machine.daemon.start()
    for home in (CACHE, STATE):
        status = home.stat()
        check(home.owner() == "thumbcached" and status.st_mode & 0o777 == 0o700, f"{home} is not thumbcached's alone")
    machine.people.make()


def brings_what_people_need(_):
    """The packages bring manual pages, completions, and a configuration that an upgrade keeps"""
    files = run("dpkg", "--listfiles", *(package.stem for package in PACKAGES)).splitlines()
    pages = ("/man1/thumbcachectl.1", *(f"/man8/{user}.8" for user in USERS))
    for part in (*pages, "/bash-completion/completions/thumbcachectl"):
        check(any(part in file for file in files), f"no file of the package is called {part}")
    conffiles = run("dpkg-query", "--show", "--showformat=${Conffiles}", "thumbcached")
    check(str(CONFIGURATION) in conffiles, f"{CONFIGURATION} is no conffile")
    check(run("thumbcached", "--check-config"), "the installed configuration is not good")
    for unit in (UNIT, SOCKET, PATH, FETCHER, FETCHER_SOCKET, EXPORTER):
        path = pathlib.Path(property_of(unit, "FragmentPath"))
        check(str(path) in files or f"/usr{path}" in files, f"{unit} comes from {path}, not from the package")


for scenario in (alone, upgrades, installs):
    scenario.begins_by_itself = True
SCENARIOS = [alone, upgrades, installs, brings_what_people_need]
