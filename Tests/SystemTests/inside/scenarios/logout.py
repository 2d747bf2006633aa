"""A log-in ends, and with it its cache: with a healthy daemon, in all the ways a log-in can end."""

import re
import time

from commands import property_of, run, systemctl
from pictures import picture
from resp import Client, Closed, Refused, ask, error_code
from waiting import check, wait_until

LOGIND_DROP_IN = "/etc/systemd/logind.conf.d/50-system-test.conf"
# "Within a second of user@UID.service stopping."
PROMPT = 1.0
RELOGINS = 10
# Of all, and those of them that are kept for admins.
CONNECTIONS = 64
FOR_ADMINS = 4


def hook(person):
    return f"thumbcached-logout@{person.uid}.service"


def wait_until_away(machine, person, cursor):
    """Returns how many seconds after the stop of the user manager the last trace was gone; negative if before."""
    unit = f"user@{person.uid}.service"
    # The traces first, and alone, so that the time is taken as soon as they are gone.
    wait_until(f"nothing of {person.name} is on disk", lambda: not machine.daemon.traces(person.uid))
    gone = time.monotonic()
    stopped = wait_until(f"{unit} has stopped", lambda: machine.daemon.stopped_at(cursor, unit))
    check(property_of(hook(person), "Result") == "success", f"{hook(person)} failed")
    return gone - stopped


def wait_until_gone(machine, person):
    """The hook has ended the caches, wherever the user's manager was."""
    wait_until(f"nothing of {person.name} is on disk", lambda: not machine.daemon.traces(person.uid))
    wait_until("the hook has ended", lambda: property_of(hook(person), "ActiveState") in ("inactive", "failed"))
    check(property_of(hook(person), "Result") == "success", f"{hook(person)} failed")


def check_ended(machine, person, account="mail"):
    """Nothing of the account is served or found."""
    check(not machine.daemon.traces(person.uid), f"of {person.name} there is {machine.daemon.traces(person.uid)}")
    check(machine.daemon.held(person, account) is None, f"{person.name} is still logged in")
    code = error_code("GET", f"{account}@{person.name}.example", "contact-0", uid=person.uid)
    check(code == "NOLOGIN", f"a GET of {person.name} is answered with {code}, not with NOLOGIN")
    check(machine.daemon.markers(person.uid) == [], f"a marker of {person.name} is left although the log-out is done")


def one_of_two_users(machine):
    """F45: of two users with several applications each one logs out; within a second nothing of that uid is left, and
    the other goes on without a miss or an error"""
    alice, bob = machine.people.alice, machine.people.bob
    leaving = [machine.people.login(alice), machine.people.login(alice, account="chat")]
    staying = [machine.people.login(bob), machine.people.login(bob, account="chat", each=True)]
    for application in leaving + staying:
        application.wait_for_hits()
    cursor = machine.daemon.now()
    for application in leaving:
        application.check_well()
        application.log_out()
    late = wait_until_away(machine, alice, cursor)
    machine.note(f"nothing was left {late * 1000:.0f} ms after user@{alice.uid}.service had stopped")
    check(late < PROMPT, f"something was left for {late:.2f} s")
    for account in ("mail", "chat"):
        check_ended(machine, alice, account)
    for application in staying:
        application.wait_for_hits()
        application.check_well()
        check(machine.daemon.held(bob) == 8, "images of the other user are missing")


def with_the_default_delay(machine):
    """F45: with logind's default delay of ten seconds the cache lives until the user manager stops, and ends then"""
    alice = machine.people.alice
    run("mv", LOGIND_DROP_IN, f"{LOGIND_DROP_IN}.off")
    try:
        systemctl("restart", "systemd-logind.service")
        application = machine.people.login(alice)
        cursor = machine.daemon.now()
        application.log_out()
        wait_until("alice has no session", lambda: not alice.has_sessions())
        if alice.manager_runs():
            held = machine.daemon.held(alice)
            check(held == 8 or not alice.manager_runs(), f"while the user manager runs, {held} images are held")
        late = wait_until_away(machine, alice, cursor)
        check(late < PROMPT, f"something was left for {late:.2f} s")
        check_ended(machine, alice)
    finally:
        run("mv", f"{LOGIND_DROP_IN}.off", LOGIND_DROP_IN)
        systemctl("restart", "systemd-logind.service")


def three_sessions(machine):
    """F45: of three sessions of one user, of three kinds, two end and nothing is purged; the third ends: purged"""
    alice = machine.people.alice
    first = machine.people.login(alice, session="one")
    second = machine.people.login(alice, kind="su", session="two")
    third = machine.people.login(alice, kind="ssh", session="three")
    cursor = machine.daemon.now()
    for application in (first, second):
        application.log_out()
        third.wait_for_hits()
        third.check_well()
        check(property_of(hook(alice), "ActiveState") == "active", "the hook ran before the last session had ended")
        check(machine.daemon.held(alice) == 8, "images are gone before the last session has ended")
    third.log_out()
    wait_until_away(machine, alice, cursor)
    check_ended(machine, alice)


def ends_of(kind, words):
    """A scenario: a session of a kind ends as such sessions do."""

    def scenario(machine):
        alice = machine.people.alice
        application = machine.people.login(alice, kind=kind)
        application.wait_for_hits()
        application.check_well()
        cursor = machine.daemon.now()
        application.log_out()
        wait_until_away(machine, alice, cursor)
        check_ended(machine, alice)

    scenario.__doc__ = f"F45: the end of {words} ends the cache"
    return scenario


def terminated(machine):
    """F45: loginctl terminate-user ends the cache, with applications that run to the last moment"""
    alice, bob = machine.people.alice, machine.people.bob
    for kind in ("service", "su", "login"):
        machine.people.login(alice, kind=kind, session=kind)
    other = machine.people.login(bob)
    cursor = machine.daemon.now()
    run("loginctl", "terminate-user", alice.name)
    late = wait_until_away(machine, alice, cursor)
    check(late < PROMPT, f"something was left for {late:.2f} s")
    check_ended(machine, alice)
    other.wait_for_hits()
    other.check_well()


def back_at_once(machine):
    """F45: a user who logs in again at once keeps what was put after the log-in, and finds nothing of before"""
    alice = machine.people.alice
    application = machine.people.login(alice)
    for _ in range(RELOGINS):
        application.log_out()
        # While the log-out before it is on its way.
        application = session_again(machine, alice)
        application.wait_until_ready()
        application.wait_for_hits()
        application.check_well()
    wait_until("the hook of the new session waits", lambda: property_of(hook(alice), "ActiveState") == "active")
    application.wait_for_hits()
    application.check_well()


def session_again(machine, person):
    """At some moments of a log-out logind cannot open a session ("transaction is destructive"): then the next log-in
    does."""
    while True:
        application = machine.people.start(person, pictures=5)
        if application.has_session():
            return application
        application.log_out()


def lingering(machine):
    """F45: the cache of a lingering user lives as long as the user manager: not until the end of the session"""
    alice = machine.people.alice
    run("loginctl", "enable-linger", alice.name)
    application = machine.people.login(alice)
    application.log_out()
    wait_until("alice has no session", lambda: not alice.has_sessions())
    check(alice.manager_runs(), "the user manager of a lingering user stopped with the session")
    check(machine.daemon.held(alice) == 8, "the cache of a lingering user ended with the session")
    cursor = machine.daemon.now()
    run("loginctl", "disable-linger", alice.name)
    wait_until_away(machine, alice, cursor)
    check_ended(machine, alice)


def quiet(machine):
    """F45: a log-out that is done says nothing: what the journal has of it is systemd's own, and no receipt"""
    alice = machine.people.alice
    application = machine.people.login(alice)
    cursor = machine.daemon.now()
    application.log_out()
    wait_until_away(machine, alice, cursor)
    said = [entry for entry in machine.daemon.entries(cursor, hook(alice)) if entry["SYSLOG_IDENTIFIER"] != "systemd"]
    check(not said, f"the log-out said {said}")


def without_room(machine):
    """F53: a log-out gets in while other uids hold every connection"""
    alice, bob, carol = machine.people.everybody
    limits = f"connections = {CONNECTIONS}\nconnections-per-uid = {CONNECTIONS}\nadmin-connections = {FOR_ADMINS}\n"
    machine.daemon.use("[limits]\n" + limits)
    ask("LOGIN", "mail@alice.example", uid=alice.uid)
    ask("PUT", "mail@alice.example", "contact-0", picture("one"), uid=alice.uid)
    session = machine.people.start(alice, resume=True, pictures=1)
    session.wait_until_ready()
    crowd = occupy_everything([bob, carol])
    held = int(re.search(rb"connected_clients:(\d+)", ask("INFO"))[1])
    check(held >= CONNECTIONS - FOR_ADMINS, f"only {held} connections are held")
    cursor = machine.daemon.now()
    session.log_out()
    late = wait_until_away(machine, alice, cursor)
    machine.note(f"with {held} connections held, nothing was left after {late * 1000:.0f} ms")
    check(late < PROMPT, f"something was left for {late:.2f} s")
    for client in crowd:
        client.close()
    wait_until("there is room again", lambda: error_code("PING", uid=alice.uid) is None)
    check_ended(machine, alice)


def occupy_everything(people):
    """As many connections of each of these people as there may be of all: one too many is refused, or has the idlest of
    whoever has most give way."""
    crowd = []
    for person in people:
        for _ in range(CONNECTIONS):
            client = Client(person.uid)
            try:
                client.command("PING")
            except Refused as error:
                check(error.code == "BUSY", f"a connection too many is answered with {error}")
                client.close()
                break
            except Closed:
                client.close()
                break
            crowd.append(client)
    check(crowd, "not one connection was served")
    return crowd


SCENARIOS = [
    one_of_two_users,
    with_the_default_delay,
    three_sessions,
    ends_of("su", "su -l"),
    ends_of("ssh", "an ssh session"),
    ends_of("login", "a log-in on a terminal"),
    terminated,
    back_at_once,
    lingering,
    quiet,
    without_room,
]
