"""Removal and purge of the packages."""

import pathlib
import tempfile

from commands import attempt, run, systemctl
from daemon import CACHE, HTTP, FETCHER_PATH, PENDING, RUNTIME, STATE, UNIT
from resp import PATH as CLIENTS
from waiting import check, wait_until

from scenarios.installation import PACKAGE, PACKAGES, PROGRAMS, apt, purge


def removed(machine):
    """apt remove stops all services and keeps the configuration; sessions then start and end without the packages"""
    # Earlier scenarios that installed another version of thumbcached removed the packages that depend on this version.
    apt("install", *PACKAGES)
    machine.people.login(machine.people.alice)
    # An administrator may have enabled these.
    pathlib.Path("/etc/thumbcached/http.toml").write_text('figures.listen = "127.0.0.1:9420"\n')
    systemctl("enable", "--now", UNIT, HTTP)
    apt("remove", *(package.stem for package in PACKAGES))
    check(not pathlib.Path("/usr/bin/thumbcached").exists(), "the program still exists")
    wait_until("no program of the packages runs", lambda: attempt("pgrep", "--full", PROGRAMS).returncode != 0)
    check(pathlib.Path("/etc/thumbcached/thumbcached.toml").exists(), "remove deleted the configuration")
    # The slices of running sessions must not start any unit again.
    active = run("systemctl", "list-units", "--plain", "--no-legend", "--state=active,failed", "thumbcached*.*").split()
    check(not active, f"units remain: {active}")
    check(not pathlib.Path(CLIENTS).exists() and not FETCHER_PATH.exists(), "a socket file remains")
    # The user who is logged in can log out, and other users can log in.
    machine.people.end_all()
    ended = attempt("su", "-l", "bob", "-c", "true")
    check(ended.returncode == 0, f"login fails without the package: {ended.stderr}")


def purged(_):
    """apt purge removes store, keys, pending logouts, configuration, and users"""
    purge()
    for path in (CACHE, STATE, PENDING, RUNTIME, pathlib.Path("/etc/thumbcached")):
        check(not path.exists(), f"{path} still exists")


def into_a_tree(_):
    """The package can be installed and purged in a chroot that is not booted and has no /proc"""
    with tempfile.TemporaryDirectory() as root:
        # Not --rbind, so that /proc is missing.
        run("mount", "--bind", "/", root)
        try:
            run("chroot", root, "dpkg", "--install", str(PACKAGE))
            check(attempt("id", "thumbcached").returncode == 0, "the package made no user thumbcached")
            mode = PENDING.stat().st_mode & 0o777
            check(PENDING.group() == "thumbcached" and mode == 0o770, f"{PENDING} has mode {mode:o}")
            run("chroot", root, "dpkg", "--purge", "thumbcached")
            check(not PENDING.exists(), f"{PENDING} is still there")
        finally:
            run("umount", root)


purged.prepares_itself = True
into_a_tree.prepares_itself = True
SCENARIOS = [removed, purged, into_a_tree]
