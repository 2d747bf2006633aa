"""The user manager, user@UID.service, ends before the user's sessions."""

import pathlib
import tempfile

from commands import attempt, property_of, run, systemctl
from images import make_image
from resp import request
from waiting import check, wait_until

from scenarios.activation import install, rebuilt, unpacked
from scenarios.installation import PACKAGE
from scenarios.logout import check_ended, hook, session_again, wait_until_gone

RELOGINS = 10

# The hook of an older version, which was bound to the user manager and the runtime directory.
OLD_HOOK_LINES = """BindsTo=user-runtime-dir@%i.service
After=user-runtime-dir@%i.service
Before=user@%i.service
StopWhenUnneeded=yes
"""
OLD_DROP_IN = """[Unit]
Wants=thumbcached-logout@%i.service
After=thumbcached-logout@%i.service
"""


def kill(person):
    """Kills the user manager, as a crash or the out-of-memory killer does."""
    systemctl("kill", "--signal=KILL", "--kill-whom=main", manager(person))
    wait_until_manager_has_ended(person)


def exit(person):  # noqa: A001 — named after the command
    """Ends the user manager by systemctl --user exit."""
    words = ["setpriv", f"--reuid={person.uid}", f"--regid={person.uid}", "--clear-groups", "env"]
    run(*words, f"XDG_RUNTIME_DIR=/run/user/{person.uid}", "systemctl", "--user", "exit")
    wait_until_manager_has_ended(person)


def manager(person):
    return f"user@{person.uid}.service"


def wait_until_manager_has_ended(person):
    wait_until(f"the manager of {person.name} has ended", lambda: not person.manager_runs())


def wait_until_ended(machine, person, *accounts):
    """Waits until the caches are deleted, then stops the slice and waits for the hook.

    systemd 252 may not stop the slice of a user whose manager ended before the sessions, and the hook remains active
    while the slice is.
    """
    wait_until(f"no file of {person.name} remains", lambda: not machine.daemon.traces(person.uid))
    person.stop_slice()
    wait_until_gone(machine, person)
    for account in accounts or ("mail",):
        check_ended(machine, person, account)


def with_two_sessions(end, words):
    """Returns a scenario: the manager ends, an account logs in, and then the sessions end one by one."""

    def scenario(machine):
        alice = machine.people.alice
        first = machine.people.login(alice, kind="su", session="one")
        second = machine.people.login(alice, kind="su", session="two")
        end(alice)
        check(property_of(hook(alice), "ActiveState") == "active", "the hook ran although sessions exist")
        for application in (first, second):
            application.wait_for_hits()
            application.check_no_failures()
        request("LOGIN", "chat@alice.example", uid=alice.uid)
        request("PUT", "chat@alice.example", "contact-0", make_image("one"), uid=alice.uid)
        first.log_out()
        second.wait_for_hits()
        second.check_no_failures()
        check(machine.daemon.image_count(alice, "chat") == 1, "images are missing before the last session has ended")
        second.log_out()
        wait_until_ended(machine, alice, "mail", "chat")

    scenario.__doc__ = f"F71: a user manager {words}; the caches are kept until the last session ends"
    return scenario


def back_at_once(machine):
    """F71: a user whose manager was killed logs out and in at once; the end of the new session deletes its cache"""
    alice = machine.people.alice
    for _ in range(RELOGINS):
        application = session_again(machine, alice)
        application.wait_until_ready()
        kill(alice)
        application.log_out()
        application = session_again(machine, alice)
        application.wait_until_ready()
        application.log_out()
        wait_until_gone(machine, alice)


def lingering(machine):
    """F71: killing the manager of a lingering user without a session deletes the cache"""
    alice = machine.people.alice
    run("loginctl", "enable-linger", alice.name)
    application = machine.people.login(alice)
    application.log_out()
    wait_until("alice has no session", lambda: not alice.has_sessions())
    check(machine.daemon.image_count(alice) == 8, "the cache of a lingering user was deleted with the session")
    kill(alice)
    wait_until_ended(machine, alice)


def terminated(machine):
    """F71: loginctl terminate-user after the manager was killed ends the sessions and deletes the cache"""
    alice = machine.people.alice
    for kind in ("su", "login"):
        machine.people.login(alice, kind=kind, session=kind)
    kill(alice)
    run("loginctl", "terminate-user", alice.name)
    wait_until_ended(machine, alice)


def stopped(machine):
    """F71: accounts that log in after an administrator stopped the user manager are logged out with the last session"""
    alice = machine.people.alice
    application = machine.people.login(alice, kind="su")
    systemctl("stop", manager(alice))
    wait_until("the hook is active again", lambda: property_of(hook(alice), "ActiveState") == "active")
    request("LOGIN", "chat@alice.example", uid=alice.uid)
    request("PUT", "chat@alice.example", "contact-0", make_image("one"), uid=alice.uid)
    application.log_out()
    wait_until_ended(machine, alice, "chat")


def isolated(machine):
    """F71: systemctl isolate keeps sessions and caches; the end of the session then deletes the cache"""
    alice = machine.people.alice
    application = machine.people.login(alice, kind="su")
    systemctl("isolate", "multi-user.target")
    application.wait_for_hits()
    application.check_no_failures(closed=None)
    check(property_of(hook(alice), "ActiveState") == "active", "systemctl isolate ran the hook")
    application.log_out()
    wait_until_gone(machine, alice)
    check_ended(machine, alice)


def upgraded(machine):
    """F71: an upgrade from units bound to the user manager keeps the caches of open sessions, and the end of the
    session deletes them even if the manager was killed"""
    alice = machine.people.alice
    with tempfile.TemporaryDirectory() as folder:
        old = older_package(pathlib.Path(folder))
        install(old)
        drop_in = pathlib.Path("/lib/systemd/system/user@.service.d/10-thumbcached.conf")
        check(drop_in.exists(), "the old units are not installed")
        application = machine.people.login(alice, kind="su")
        install(PACKAGE)
    application.wait_for_hits()
    application.check_no_failures(closed=None)
    check(machine.daemon.image_count(alice) == 8, "the upgrade deleted a cache")
    kill(alice)
    application.wait_for_hits()
    application.check_no_failures(closed=None)
    application.log_out()
    wait_until_ended(machine, alice)


def older_package(folder):
    tree = unpacked(folder)
    units = next(path for path in (tree / "usr/lib/systemd/system", tree / "lib/systemd/system") if path.exists())
    unit = units / "thumbcached-logout@.service"
    removed = ("Before=", "StopWhenUnneeded=", "IgnoreOnIsolate=", "OnFailure=")
    lines = [line for line in unit.read_text().splitlines() if not line.startswith(removed)]
    unit.write_text("\n".join(lines).replace("[Unit]\n", "[Unit]\n" + OLD_HOOK_LINES, 1) + "\n")
    (units / "user-.slice.d/10-thumbcached.conf").unlink()
    (units / "user-.slice.d").rmdir()
    (units / "user@.service.d").mkdir()
    (units / "user@.service.d/10-thumbcached.conf").write_text(OLD_DROP_IN)
    return rebuilt(folder, "0.0.1")


SCENARIOS = [
    with_two_sessions(kill, "is killed"),
    with_two_sessions(exit, "exits"),
    back_at_once,
    lingering,
    terminated,
    stopped,
    isolated,
    upgraded,
]
