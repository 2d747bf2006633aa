"""Peers whose uid the kernel cannot name, and peers that pretend."""

import subprocess

from commands import attempt
from daemon import PENDING
from pictures import picture
from resp import Closed, Refused, ask
from waiting import check

OVERFLOW = 65534


def unmapped(machine):
    """F29: with the service in a user namespace, a peer whose uid cannot be told is refused, not served as nobody"""
    alice, bob = machine.people.alice, machine.people.bob
    machine.daemon.drop_in("[Service]\nPrivateUsers=yes\n")
    machine.daemon.restart()
    for person in (alice, bob):
        for words in (["LOGIN", "mail"], ["GET", "mail", "contact-0"], ["USERS"]):
            answer = answer_to(words, person.uid)
            check(answer.startswith("DENIED"), f"{words[0]} of a uid that cannot be told is answered with {answer}")
    check(not machine.daemon.traces(OVERFLOW), f"there is a log-in of uid {OVERFLOW}")


def from_a_namespace(machine):
    """F29: a program in a user namespace of its own is who it was outside, whatever it calls itself inside"""
    alice, bob = machine.people.alice, machine.people.bob
    ask("LOGIN", "mail", uid=alice.uid)
    image = picture("alice's")
    ask("PUT", "mail", "contact-0", image, uid=alice.uid)
    for mapping in ([], ["--map-root-user"], [f"--map-user={alice.uid}"]):
        words = ["setpriv", f"--reuid={bob.uid}", f"--regid={bob.uid}", "--clear-groups", "unshare", "--user", *mapping]
        for command in (["GET", "mail", "contact-0"], ["LOGOUT", "*", "UID", str(alice.uid)]):
            ended = subprocess.run(
                [*words, "redis-cli", "-s", "/run/thumbcached/thumbcached.sock", *command],
                capture_output=True,
                timeout=60,
            )
            said = (ended.stdout + ended.stderr).decode(errors="replace")
            check(said.startswith(("NOLOGIN", "DENIED")), f"{' '.join(mapping)} {command[0]} is answered with {said!r}")
    check(ask("GET", "mail", "contact-0", uid=alice.uid) == image, "alice's image is gone")


def another_uid(machine):
    """F27, F28: a user can neither log out another, nor see whether another is logged in"""
    alice, bob = machine.people.alice, machine.people.bob
    machine.people.login(alice)
    answer = answer_to(["LOGOUT", "*", "UID", alice.uid], bob.uid)
    check(answer.startswith("DENIED"), f"a log-out of another uid is answered with {answer}")
    check(ask("USERS", uid=bob.uid) == [], "a user sees another's log-ins")
    words = ["setpriv", f"--reuid={bob.uid}", "--clear-groups", "thumbcachectl", "logout", "--all"]
    ended = attempt(*words, "--uid", str(alice.uid), "--pending", str(PENDING))
    check(ended.returncode == 1, f"thumbcachectl let a user log out another: status {ended.returncode}: {ended.stderr}")
    check(machine.daemon.markers() == [], "a user who is not root left a marker")
    check(machine.daemon.held(alice) == 8, "another uid's command touched images")


def answer_to(words, uid):
    try:
        return str(ask(*words, uid=uid))
    except (Refused, Closed) as error:
        return str(error)


SCENARIOS = [unmapped, from_a_namespace, another_uid]
