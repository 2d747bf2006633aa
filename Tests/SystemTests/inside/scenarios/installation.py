"""Installation of the packages: each alone, all together, and over an older version."""

import pathlib
import re
import tempfile

from commands import attempt, property_of, run, systemctl
from daemon import (
    CACHE,
    CONFIGURATION,
    HTTP,
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
HTTP_PACKAGE = EXCHANGE / "thumbcached-http.deb"
FLEET_PACKAGE = EXCHANGE / "thumbcached-fleet.deb"
PACKAGES = [PACKAGE, RENDERER_PACKAGE, HTTP_PACKAGE, FLEET_PACKAGE]
USERS = ["thumbcached", "thumbcached-fetcher", "thumbcached-http", "thumbcached-relay", "thumbcached-oidc"]
# A pattern of the programs' command lines, for pgrep.
PROGRAMS = "^/usr/(bin/thumbcached|libexec/thumbcached-)"


def apt(command, *packages):
    """Runs apt-get without a network and returns its output."""
    return run(
        "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", command, "--yes", "--no-install-recommends",
        "--option=Dpkg::Options::=--force-confold", *map(str, packages),
    )


def alone(machine):
    """The daemon, the renderer, the HTTP service and the fleet package each install with only their dependencies, and a
    purge leaves nothing"""
    for packages, units, programs in (
        ([PACKAGE], [SOCKET, PATH, FETCHER_SOCKET], ["bin/thumbcached", "bin/thumbcachectl"]),
        ([PACKAGE, RENDERER_PACKAGE], [RENDERER_SOCKET], ["libexec/thumbcached-renderer"]),
        ([PACKAGE, HTTP_PACKAGE], [], ["bin/thumbcached-http"]),
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
    """Upgrades from the single package 0.1.0-1 keep enabled services, except those whose new package is missing"""
    machine.people.make()
    services = (HTTP, "thumbcached-relay.service")
    with tempfile.TemporaryDirectory() as folder:
        single = single_package(pathlib.Path(folder))
        for packages, remain in ((PACKAGES, True), ([PACKAGE], False)):
            apt("install", single)
            for user in USERS:
                check(attempt("id", user).returncode == 0, f"the single package made no user {user}")
            pathlib.Path("/etc/thumbcached/relay.toml").write_text('redis.address = "127.0.0.1:1"\n')
            pathlib.Path("/etc/thumbcached/http.toml").write_text('figures.listen = "127.0.0.1:9420"\n')
            # The sockets of relay and thumbcached-http are not affected; the daemon's socket must stay open during the upgrade.
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
                # No installed package owns these files, so no purge removes them.
                for name in ("relay", "http"):
                    pathlib.Path(f"/etc/thumbcached/{name}.toml").unlink()
            purge()


def installed(*other_states):
    """The packages that are installed, or in one of the other states of dpkg-query(1)."""
    lines = run("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", "thumbcached*").splitlines()
    return [name for name, state in map(str.split, lines) if state in ("installed", *other_states)]


def purge():
    """Purges all packages and checks that no user, process or file remains."""
    packages = installed("config-files")
    warnings = [line for line in apt("purge", *packages).splitlines() if "warning" in line.lower()]
    # The package that is purged last removes the directory with the configuration of all.
    warnings = [line for line in warnings if "directory '/etc/thumbcached' not empty" not in line]
    check(not warnings, f"purging {packages}: {warnings}")
    for user in USERS:
        check(attempt("id", user).returncode != 0, f"the user {user} remains after purging {packages}")
    wait_until("no program of the packages runs", lambda: attempt("pgrep", "--full", PROGRAMS).returncode != 0)
    left = run("find", "/etc", "/usr", "/var/lib", "/var/cache", "/run", "-xdev", "-name", "*thumbcache*").split()
    left = [path for path in left if "/system-test/" not in path and "/lib/dpkg/" not in path]
    check(not left, f"files remain after purging {packages}: {left}")


def single_package(folder):
    """Builds a package with the files and scripts of three packages, like version 0.1.0-1."""
    tree = folder / "tree"
    scripts = {}
    for package in (PACKAGE, HTTP_PACKAGE, FLEET_PACKAGE):
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
        # Each in its own subshell, because a script may exit.
        whole = "#!/bin/sh\nset -e\n" + "".join(f"(\n{text}\n)\n" for text in texts)
        (tree / "DEBIAN" / script).write_text(whole)
        (tree / "DEBIAN" / script).chmod(0o755)
    package = folder / "single.deb"
    run("dpkg-deb", "--build", "--root-owner-group", "-Znone", str(tree), str(package))
    # apt reads packages as the user _apt.
    folder.chmod(0o755)
    return package


def installs(machine):
    """The packages install together and set up users, directories, units, and a socket that answers"""
    for user in USERS:
        check(attempt("id", user).returncode != 0, f"the user {user} exists before the installation")
    apt("install", *PACKAGES)
    for user in USERS:
        check(attempt("id", user).returncode == 0, f"the packages made no user {user}")
    check(CONFIGURATION.is_file(), f"there is no {CONFIGURATION}")
    for unit in (SOCKET, PATH, FETCHER_SOCKET, RENDERER_SOCKET):
        check(property_of(unit, "ActiveState") == "active", f"{unit} is not active after the installation")
        check(property_of(unit, "UnitFileState") == "enabled", f"{unit} is not enabled after the installation")
    # thumbcached-http listens at a TCP port, so an administrator has to enable it.
    check(property_of(HTTP, "UnitFileState") == "disabled", f"{HTTP} is enabled after the installation")
    check(property_of(HTTP, "ActiveState") == "inactive", f"{HTTP} is active after the installation")
    machine.daemon.start()
    for home in (CACHE, STATE):
        status = home.stat()
        check(home.owner() == "thumbcached" and status.st_mode & 0o777 == 0o700, f"others have access to {home}")
    machine.people.make()


def installs_documentation(_):
    """The packages contain manual pages, completions, and a configuration that upgrades keep"""
    files = run("dpkg", "--listfiles", *(package.stem for package in PACKAGES)).splitlines()
    pages = ("/man1/thumbcachectl.1", *(f"/man8/{user}.8" for user in USERS))
    for part in (*pages, "/bash-completion/completions/thumbcachectl"):
        check(any(part in file for file in files), f"the packages contain no file {part}")
    conffiles = run("dpkg-query", "--show", "--showformat=${Conffiles}", "thumbcached")
    check(str(CONFIGURATION) in conffiles, f"{CONFIGURATION} is not a conffile")
    check(run("thumbcached", "--check-config"), "the installed configuration is invalid")
    for unit in (UNIT, SOCKET, PATH, FETCHER, FETCHER_SOCKET, HTTP):
        path = pathlib.Path(property_of(unit, "FragmentPath"))
        check(str(path) in files or f"/usr{path}" in files, f"{unit} is loaded from {path}, which no package contains")


for scenario in (alone, upgrades, installs):
    scenario.prepares_itself = True
SCENARIOS = [alone, upgrades, installs, installs_documentation]
