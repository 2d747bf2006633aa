"""The package is installed in the running system, and what its installation sets up."""

import pathlib

from commands import attempt, property_of, run
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
from waiting import check

PACKAGE = EXCHANGE / "package.deb"
RENDERER_PACKAGE = EXCHANGE / "renderer.deb"
# The daemon, what downloads for it, what shows its figures, what brings it the log-outs of many machines, and what takes
# those of an identity provider.
USERS = ["thumbcached", "thumbcached-fetcher", "thumbcached-exporter", "thumbcached-relay", "thumbcached-oidc"]


def installs(machine):
    """The Debian package installs, with its users, its directories, and a socket that answers"""
    for user in USERS:
        check(attempt("id", user).returncode != 0, f"the user {user} is there before the package is")
    run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", str(PACKAGE), str(RENDERER_PACKAGE))
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
    """The package brings manual pages, completions, and a configuration that an upgrade keeps"""
    files = run("dpkg", "--listfiles", "thumbcached").splitlines()
    pages = ("/man1/thumbcachectl.1", *(f"/man8/{user}.8" for user in USERS))
    for part in (*pages, "/bash-completion/completions/thumbcachectl"):
        check(any(part in file for file in files), f"no file of the package is called {part}")
    conffiles = run("dpkg-query", "--show", "--showformat=${Conffiles}", "thumbcached")
    check(str(CONFIGURATION) in conffiles, f"{CONFIGURATION} is no conffile")
    check(run("thumbcached", "--check-config"), "the installed configuration is not good")
    for unit in (UNIT, SOCKET, PATH, FETCHER, FETCHER_SOCKET, EXPORTER):
        path = pathlib.Path(property_of(unit, "FragmentPath"))
        check(str(path) in files or f"/usr{path}" in files, f"{unit} comes from {path}, not from the package")


installs.begins_by_itself = True
SCENARIOS = [installs, brings_what_people_need]
