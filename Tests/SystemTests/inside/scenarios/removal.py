"""The packages are removed and purged."""

import pathlib
import tempfile

from commands import attempt, run, systemctl
from daemon import CACHE, EXPORTER, FETCHER_PATH, PENDING, RUNTIME, STATE, UNIT
from resp import PATH as CLIENTS
from waiting import check, wait_until

from scenarios.installation import PACKAGE, PACKAGES, PROGRAMS, apt, purge


def removed(machine):
    """apt remove stops everything, and keeps the configuration; sessions then begin and end without the package"""
    # Scenarios that install another version of the daemon's package remove those that depend on this version.
    apt("install", *PACKAGES)
    machine.people.login(machine.people.alice)
    # As an administrator may have it.
    systemctl("enable", "--now", UNIT, EXPORTER)
    apt("remove", *(package.stem for package in PACKAGES))
    check(not pathlib.Path("/usr/bin/thumbcached").exists(), "the program is still there")
    wait_until("no program of the packages runs", lambda: attempt("pgrep", "--full", PROGRAMS).returncode != 0)
    check(pathlib.Path("/etc/thumbcached/thumbcached.toml").exists(), "remove took the configuration")
    # Nor do the slices of sessions that run bring anything back.
    active = run("systemctl", "list-units", "--plain", "--no-legend", "--state=active,failed", "thumbcached*.*").split()
    check(not active, f"units are left: {active}")
    check(not pathlib.Path(CLIENTS).exists() and not FETCHER_PATH.exists(), "a socket is left that nobody serves")
    # Whoever is logged in can log out, and others in, with nothing of it left.
    machine.people.end_all()
    ended = attempt("su", "-l", "bob", "-c", "true")
    check(ended.returncode == 0, f"without the package nobody can log in: {ended.stderr}")


def purged(_):
    """apt purge removes store, keys, pending log-outs, configuration, and users"""
    purge()
    for path in (CACHE, STATE, PENDING, RUNTIME, pathlib.Path("/etc/thumbcached")):
        check(not path.exists(), f"{path} is still there")


def into_a_tree(_):
    """Into a tree that is not booted, and has no /proc, the package installs, and out of it again"""
    with tempfile.TemporaryDirectory() as root:
        # Without what is mounted in it.
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


purged.begins_by_itself = True
into_a_tree.begins_by_itself = True
SCENARIOS = [removed, purged, into_a_tree]
