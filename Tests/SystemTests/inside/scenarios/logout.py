"""Logouts with a running daemon: every way a login can end deletes its cache."""

import re
import time

from commands import property_of, run, systemctl
from images import make_image
from resp import Client, Closed, ErrorReply, error_code, request
from waiting import check, wait_until

LOGIND_DROP_IN = "/etc/systemd/logind.conf.d/50-system-test.conf"
# Seconds after user@UID.service has stopped, within which the cache must be deleted.
PROMPT = 1.0
RELOGINS = 10
# All connections, and those reserved for admins.
CONNECTIONS = 64
FOR_ADMINS = 4


def hook(person):
    return f"thumbcached-logout@{person.uid}.service"


def wait_until_no_trace(machine, person, cursor):
    """Returns the seconds from the stop of the user manager to the deletion of the last file; may be negative."""
    unit = f"user@{person.uid}.service"
    # Checked first and alone, so that the time is taken as soon as the files are deleted.
    wait_until(f"no file of {person.name} remains", lambda: not machine.daemon.traces(person.uid))
    gone = time.monotonic()
    stopped = wait_until(f"{unit} has stopped", lambda: machine.daemon.stopped_at(cursor, unit))
    check(property_of(hook(person), "Result") == "success", f"{hook(person)} failed")
    return gone - stopped


def wait_until_gone(machine, person):
    """Waits until the hook has ended and the caches are deleted, whether or not the user manager has ended."""
    wait_until(f"no file of {person.name} remains", lambda: not machine.daemon.traces(person.uid))
    wait_until("the hook has ended", lambda: property_of(hook(person), "ActiveState") in ("inactive", "failed"))
    check(property_of(hook(person), "Result") == "success", f"{hook(person)} failed")


def check_ended(machine, person, account="mail"):
    """Checks that no file of the user remains and that the account is logged out."""
    check(not machine.daemon.traces(person.uid), f"files of {person.name} remain: {machine.daemon.traces(person.uid)}")
    check(machine.daemon.image_count(person, account) is None, f"{person.name} is still logged in")
    code = error_code("GET", f"{account}@{person.name}.example", "contact-0", uid=person.uid)
    check(code == "NOLOGIN", f"a GET of {person.name} was answered with {code} instead of NOLOGIN")
    check(machine.daemon.pending_files(person.uid) == [], f"a pending-logout file of {person.name} remains")


def one_of_two_users(machine):
    """F45: within a second of one user's logout no file of that uid remains; another user has no miss and no error"""
    alice, bob = machine.people.alice, machine.people.bob
    leaving = [machine.people.login(alice), machine.people.login(alice, account="chat")]
    staying = [machine.people.login(bob), machine.people.login(bob, account="chat", each=True)]
    for application in leaving + staying:
        application.wait_for_hits()
    cursor = machine.daemon.now()
    for application in leaving:
        application.check_no_failures()
        application.log_out()
    late = wait_until_no_trace(machine, alice, cursor)
    machine.note(f"all files were deleted {late * 1000:.0f} ms after user@{alice.uid}.service had stopped")
    check(late < PROMPT, f"files remained for {late:.2f} s")
    for account in ("mail", "chat"):
        check_ended(machine, alice, account)
    for application in staying:
        application.wait_for_hits()
        application.check_no_failures()
        check(machine.daemon.image_count(bob) == 8, "images of the other user are missing")


def with_the_default_delay(machine):
    """F45: with logind's default delay of ten seconds the cache remains until the user manager stops"""
    alice = machine.people.alice
    run("mv", LOGIND_DROP_IN, f"{LOGIND_DROP_IN}.off")
    try:
        systemctl("restart", "systemd-logind.service")
        application = machine.people.login(alice)
        cursor = machine.daemon.now()
        application.log_out()
        wait_until("alice has no session", lambda: not alice.has_sessions())
        if alice.manager_runs():
            held = machine.daemon.image_count(alice)
            check(held == 8 or not alice.manager_runs(), f"{held} images are stored while the user manager runs")
        late = wait_until_no_trace(machine, alice, cursor)
        check(late < PROMPT, f"files remained for {late:.2f} s")
        check_ended(machine, alice)
    finally:
        run("mv", f"{LOGIND_DROP_IN}.off", LOGIND_DROP_IN)
        systemctl("restart", "systemd-logind.service")


def three_sessions(machine):
    """F45: of a user's three sessions, of three kinds, only the end of the last deletes the cache"""
    alice = machine.people.alice
    first = machine.people.login(alice, session="one")
    second = machine.people.login(alice, kind="su", session="two")
    third = machine.people.login(alice, kind="ssh", session="three")
    cursor = machine.daemon.now()
    for application in (first, second):
        application.log_out()
        third.wait_for_hits()
        third.check_no_failures()
        check(property_of(hook(alice), "ActiveState") == "active", "the hook ran before the last session ended")
        check(machine.daemon.image_count(alice) == 8, "images are missing before the last session has ended")
    third.log_out()
    wait_until_no_trace(machine, alice, cursor)
    check_ended(machine, alice)


def ends_of(kind, words):
    """Returns a scenario in which a session of one kind ends."""

    def scenario(machine):
        alice = machine.people.alice
        application = machine.people.login(alice, kind=kind)
        application.wait_for_hits()
        application.check_no_failures()
        cursor = machine.daemon.now()
        application.log_out()
        wait_until_no_trace(machine, alice, cursor)
        check_ended(machine, alice)

    scenario.__doc__ = f"F45: the end of {words} deletes the cache"
    return scenario


def terminated(machine):
    """F45: loginctl terminate-user deletes the cache while applications send requests"""
    alice, bob = machine.people.alice, machine.people.bob
    for kind in ("service", "su", "login"):
        machine.people.login(alice, kind=kind, session=kind)
    other = machine.people.login(bob)
    cursor = machine.daemon.now()
    run("loginctl", "terminate-user", alice.name)
    late = wait_until_no_trace(machine, alice, cursor)
    check(late < PROMPT, f"files remained for {late:.2f} s")
    check_ended(machine, alice)
    other.wait_for_hits()
    other.check_no_failures()


def back_at_once(machine):
    """F45: a user who logs in again immediately keeps what is stored after the login and finds no earlier image"""
    alice = machine.people.alice
    application = machine.people.login(alice)
    for _ in range(RELOGINS):
        application.log_out()
        # The previous logout may still be in progress.
        application = session_again(machine, alice)
        application.wait_until_ready()
        application.wait_for_hits()
        application.check_no_failures()
    wait_until("the hook of the new session waits", lambda: property_of(hook(alice), "ActiveState") == "active")
    application.wait_for_hits()
    application.check_no_failures()


def session_again(machine, person):
    """Starts a session; retries, because during a logout logind may fail with "transaction is destructive"."""
    while True:
        application = machine.people.start(person, images=5)
        if application.has_session():
            return application
        application.log_out()


def lingering(machine):
    """F45: a lingering user's cache is kept until the user manager stops"""
    alice = machine.people.alice
    run("loginctl", "enable-linger", alice.name)
    application = machine.people.login(alice)
    application.log_out()
    wait_until("alice has no session", lambda: not alice.has_sessions())
    check(alice.manager_runs(), "the user manager of a lingering user stopped with the session")
    check(machine.daemon.image_count(alice) == 8, "the cache of a lingering user was deleted with the session")
    cursor = machine.daemon.now()
    run("loginctl", "disable-linger", alice.name)
    wait_until_no_trace(machine, alice, cursor)
    check_ended(machine, alice)


def quiet(machine):
    """F45: a successful logout writes nothing to the journal; all entries are systemd's"""
    alice = machine.people.alice
    application = machine.people.login(alice)
    cursor = machine.daemon.now()
    application.log_out()
    wait_until_no_trace(machine, alice, cursor)
    said = [entry for entry in machine.daemon.entries(cursor, hook(alice)) if entry["SYSLOG_IDENTIFIER"] != "systemd"]
    check(not said, f"the logout wrote {said}")


def without_room(machine):
    """F53: a logout succeeds while other uids hold all connections"""
    alice, bob, carol = machine.people.all
    limits = f"connections = {CONNECTIONS}\nconnections-per-uid = {CONNECTIONS}\nadmin-connections = {FOR_ADMINS}\n"
    machine.daemon.use("[limits]\n" + limits)
    request("LOGIN", "mail@alice.example", uid=alice.uid)
    request("PUT", "mail@alice.example", "contact-0", make_image("one"), uid=alice.uid)
    session = machine.people.start(alice, resume=True, images=1)
    session.wait_until_ready()
    crowd = occupy_everything([bob, carol])
    held = int(re.search(rb"connected_clients:(\d+)", request("INFO"))[1])
    check(held >= CONNECTIONS - FOR_ADMINS, f"only {held} connections are open")
    cursor = machine.daemon.now()
    session.log_out()
    late = wait_until_no_trace(machine, alice, cursor)
    machine.note(f"with {held} open connections, all files were deleted after {late * 1000:.0f} ms")
    check(late < PROMPT, f"files remained for {late:.2f} s")
    for client in crowd:
        client.close()
    wait_until("connections are accepted again", lambda: error_code("PING", uid=alice.uid) is None)
    check_ended(machine, alice)


def occupy_everything(people):
    """Opens connections of each person until one is rejected, or closes the idlest of the uid with the most."""
    crowd = []
    for person in people:
        for _ in range(CONNECTIONS):
            client = Client(person.uid)
            try:
                client.command("PING")
            except ErrorReply as error:
                check(error.code == "BUSY", f"a connection over the limit was answered with {error}")
                client.close()
                break
            except Closed:
                client.close()
                break
            crowd.append(client)
    check(crowd, "no connection was accepted")
    return crowd


SCENARIOS = [
    one_of_two_users,
    with_the_default_delay,
    three_sessions,
    ends_of("su", "su -l"),
    ends_of("ssh", "an ssh session"),
    ends_of("login", "a login on a terminal"),
    terminated,
    back_at_once,
    lingering,
    quiet,
    without_room,
]
