"""The package is installed in the running system, and what its installation sets up."""

import pathlib

from commands import attempt, property_of, run
from daemon import CACHE, CONFIGURATION, FETCHER, FETCHER_SOCKET, PATH, SOCKET, STATE, UNIT
from machine import EXCHANGE
from waiting import check

PACKAGE = EXCHANGE / "package.deb"
# The daemon, and what downloads for it.
USERS = ["thumbcached", "thumbcached-fetcher"]


def installs(machine):
    """The Debian package installs, with its users, its directories, and a socket that answers"""
    for user in USERS:
        check(attempt("id", user).returncode != 0, f"the user {user} is there before the package is")
    run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", str(PACKAGE))
    for user in USERS:
        check(attempt("id", user).returncode == 0, f"the package made no user {user}")
    check(CONFIGURATION.is_file(), f"there is no {CONFIGURATION}")
    for unit in (SOCKET, PATH, FETCHER_SOCKET):
        check(property_of(unit, "ActiveState") == "active", f"{unit} is not active after the installation")
        check(property_of(unit, "UnitFileState") == "enabled", f"{unit} would not be active after a boot")
    machine.daemon.start()
    for home in (CACHE, STATE):
        status = home.stat()
        check(home.owner() == "thumbcached" and status.st_mode & 0o777 == 0o700, f"{home} is not thumbcached's alone")
    machine.people.make()


def brings_what_people_need(_):
    """The package brings manual pages, completions, and a configuration that an upgrade keeps"""
    files = run("dpkg", "--listfiles", "thumbcached").splitlines()
    pages = ("/man1/thumbcachectl.1", "/man8/thumbcached.8", "/man8/thumbcached-fetcher.8")
    for part in (*pages, "/bash-completion/completions/thumbcachectl"):
        check(any(part in file for file in files), f"no file of the package is called {part}")
    conffiles = run("dpkg-query", "--show", "--showformat=${Conffiles}", "thumbcached")
    check(str(CONFIGURATION) in conffiles, f"{CONFIGURATION} is no conffile")
    check(run("thumbcached", "--check-config"), "the installed configuration is not good")
    for unit in (UNIT, SOCKET, PATH, FETCHER, FETCHER_SOCKET):
        path = pathlib.Path(property_of(unit, "FragmentPath"))
        check(str(path) in files or f"/usr{path}" in files, f"{unit} comes from {path}, not from the package")


installs.begins_by_itself = True
SCENARIOS = [installs, brings_what_people_need]
