"""A user's manager, user@UID.service, ends before the user's sessions do."""

import pathlib
import tempfile

from commands import attempt, property_of, run, systemctl
from pictures import picture
from resp import ask
from waiting import check, wait_until

from scenarios.activation import install, rebuilt, unpacked
from scenarios.installation import PACKAGE
from scenarios.logout import check_ended, hook, session_again, wait_until_gone

RELOGINS = 10

# As the package had them once: a hook that belongs to the user's manager and to the runtime directory.
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
    """As when it crashes, or memory runs out."""
    systemctl("kill", "--signal=KILL", "--kill-whom=main", manager(person))
    wait_until_manager_has_ended(person)


def exit(person):  # noqa: A001 — what the command is called
    """As when the user asks for it: systemctl --user exit."""
    words = ["setpriv", f"--reuid={person.uid}", f"--regid={person.uid}", "--clear-groups", "env"]
    run(*words, f"XDG_RUNTIME_DIR=/run/user/{person.uid}", "systemctl", "--user", "exit")
    wait_until_manager_has_ended(person)


def manager(person):
    return f"user@{person.uid}.service"


def wait_until_manager_has_ended(person):
    wait_until(f"the manager of {person.name} has ended", lambda: not person.manager_runs())


def wait_until_ended(machine, person, *accounts):
    """The caches have ended. Not until the hook is inactive: systemd 252 may forget to stop the slice of a user whose
    manager ended before the sessions did, and as long as that is there, so is the hook.
    """
    wait_until(f"nothing of {person.name} is on disk", lambda: not machine.daemon.traces(person.uid))
    person.stop_slice()
    wait_until_gone(machine, person)
    for account in accounts or ("mail",):
        check_ended(machine, person, account)


def with_two_sessions(end, words):
    """A scenario: the manager ends, programs log in again, and then one session after the other ends."""

    def scenario(machine):
        alice = machine.people.alice
        first = machine.people.login(alice, kind="su", session="one")
        second = machine.people.login(alice, kind="su", session="two")
        end(alice)
        check(property_of(hook(alice), "ActiveState") == "active", "the hook ran although there are sessions")
        for application in (first, second):
            application.wait_for_hits()
            application.check_well()
        ask("LOGIN", "chat@alice.example", uid=alice.uid)
        ask("PUT", "chat@alice.example", "contact-0", picture("one"), uid=alice.uid)
        first.log_out()
        second.wait_for_hits()
        second.check_well()
        check(machine.daemon.held(alice, "chat") == 1, "images are gone before the last session has ended")
        second.log_out()
        wait_until_ended(machine, alice, "mail", "chat")

    scenario.__doc__ = f"F71: a user's manager {words}; sessions keep their caches, and the last of them ends all"
    return scenario


def back_at_once(machine):
    """F71: a user whose manager was killed ends the last session and is back at once: the new session's end ends its
    cache"""
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
    """F71: the manager of a lingering user without a session is killed: nobody is left to keep the cache, and it ends
    """
    alice = machine.people.alice
    run("loginctl", "enable-linger", alice.name)
    application = machine.people.login(alice)
    application.log_out()
    wait_until("alice has no session", lambda: not alice.has_sessions())
    check(machine.daemon.held(alice) == 8, "the cache of a lingering user ended with the session")
    kill(alice)
    wait_until_ended(machine, alice)


def terminated(machine):
    """F71: loginctl terminate-user after the manager was killed ends sessions and cache"""
    alice = machine.people.alice
    for kind in ("su", "login"):
        machine.people.login(alice, kind=kind, session=kind)
    kill(alice)
    run("loginctl", "terminate-user", alice.name)
    wait_until_ended(machine, alice)


def stopped(machine):
    """F71: an administrator stops a user's manager: what programs of its sessions log in then ends with the last of
    them
    """
    alice = machine.people.alice
    application = machine.people.login(alice, kind="su")
    systemctl("stop", manager(alice))
    wait_until("the hook waits again", lambda: property_of(hook(alice), "ActiveState") == "active")
    ask("LOGIN", "chat@alice.example", uid=alice.uid)
    ask("PUT", "chat@alice.example", "contact-0", picture("one"), uid=alice.uid)
    application.log_out()
    wait_until_ended(machine, alice, "chat")


def isolated(machine):
    """F71: systemctl isolate leaves sessions alone, and so their caches; their end still ends them"""
    alice = machine.people.alice
    application = machine.people.login(alice, kind="su")
    systemctl("isolate", "multi-user.target")
    application.wait_for_hits()
    application.check_well(closed=None)
    check(property_of(hook(alice), "ActiveState") == "active", "isolating a target ran the hook")
    application.log_out()
    wait_until_gone(machine, alice)
    check_ended(machine, alice)


def upgraded(machine):
    """F71: an upgrade from units that belonged to the user's manager keeps the caches of sessions that run, and their
    end ends them though the manager was killed"""
    alice = machine.people.alice
    with tempfile.TemporaryDirectory() as folder:
        old = older_package(pathlib.Path(folder))
        install(old)
        check(
            pathlib.Path("/lib/systemd/system/user@.service.d/10-thumbcached.conf").exists(), "these are no old units"
        )
        application = machine.people.login(alice, kind="su")
        install(PACKAGE)
    application.wait_for_hits()
    application.check_well(closed=None)
    check(machine.daemon.held(alice) == 8, "the upgrade ended a cache")
    kill(alice)
    application.wait_for_hits()
    application.check_well(closed=None)
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
