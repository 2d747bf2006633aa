"""Peers whose uid is unknown or belongs to another user namespace."""

import subprocess

from commands import attempt
from daemon import PENDING
from images import make_image
from resp import Closed, ErrorReply, request
from waiting import check

OVERFLOW = 65534


def unmapped(machine):
    """F29: a service in a user namespace rejects peers whose uid is not mapped, instead of serving them as nobody"""
    alice, bob = machine.people.alice, machine.people.bob
    machine.daemon.drop_in("[Service]\nPrivateUsers=yes\n")
    machine.daemon.restart()
    for person in (alice, bob):
        for words in (["LOGIN", "mail"], ["GET", "mail", "contact-0"], ["USERS"]):
            answer = answer_to(words, person.uid)
            check(answer.startswith("DENIED"), f"{words[0]} of an unmapped uid was answered with {answer}")
    check(not machine.daemon.traces(OVERFLOW), f"there is a login of uid {OVERFLOW}")


def from_a_namespace(machine):
    """F29: a program in its own user namespace is served with its uid outside the namespace"""
    alice, bob = machine.people.alice, machine.people.bob
    request("LOGIN", "mail", uid=alice.uid)
    image = make_image("alice's")
    request("PUT", "mail", "contact-0", image, uid=alice.uid)
    for mapping in ([], ["--map-root-user"], [f"--map-user={alice.uid}"]):
        words = ["setpriv", f"--reuid={bob.uid}", f"--regid={bob.uid}", "--clear-groups", "unshare", "--user", *mapping]
        for command in (["GET", "mail", "contact-0"], ["LOGOUT", "*", "UID", str(alice.uid)]):
            ended = subprocess.run(
                [*words, "redis-cli", "-s", "/run/thumbcached/thumbcached.sock", *command],
                capture_output=True,
                timeout=60,
            )
            said = (ended.stdout + ended.stderr).decode(errors="replace")
            is_denied = said.startswith(("NOLOGIN", "DENIED"))
            check(is_denied, f"{' '.join(mapping)} {command[0]} was answered with {said!r}")
    check(request("GET", "mail", "contact-0", uid=alice.uid) == image, "alice's image is missing")


def another_uid(machine):
    """F27, F28: a user can neither log out another user nor see whether another user is logged in"""
    alice, bob = machine.people.alice, machine.people.bob
    machine.people.login(alice)
    answer = answer_to(["LOGOUT", "*", "UID", alice.uid], bob.uid)
    check(answer.startswith("DENIED"), f"a logout of another uid was answered with {answer}")
    check(request("USERS", uid=bob.uid) == [], "USERS shows another user's logins")
    words = ["setpriv", f"--reuid={bob.uid}", "--clear-groups", "thumbcachectl", "logout", "--all"]
    ended = attempt(*words, "--uid", str(alice.uid), "--pending", str(PENDING))
    check(ended.returncode == 1, f"thumbcachectl logout of another user: status {ended.returncode}: {ended.stderr}")
    check(machine.daemon.pending_files() == [], "an unprivileged user left a pending-logout file")
    check(machine.daemon.image_count(alice) == 8, "another user's command deleted images")


def answer_to(words, uid):
    try:
        return str(request(*words, uid=uid))
    except (ErrorReply, Closed) as error:
        return str(error)


SCENARIOS = [unmapped, from_a_namespace, another_uid]
