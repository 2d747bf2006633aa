"""What a boot does: each scenario after it belongs to a preparation before it."""

import pathlib

from commands import run
from daemon import UNIT
from machine import EXCHANGE
from pictures import picture
from resp import ask
from waiting import check, wait_until

from scenarios.logout import hook

BOOT_ID = "/proc/sys/kernel/random/boot_id"

# Tells run.py to end this boot as a power cut does.
PLUG = EXCHANGE / "pull-the-plug"


def log_in_everybody(machine):
    """Log-ins that no hook ends: alice's is a program's without a session; bob has one, but the plug is pulled."""
    alice, bob = machine.people.alice, machine.people.bob
    ask("LOGIN", "mail@alice.example", uid=alice.uid)
    ask("PUT", "mail@alice.example", "contact-0", picture("alice's"), uid=alice.uid)
    machine.people.login(bob).wait_for_hits()
    with open(BOOT_ID, encoding="utf-8") as file:
        machine.remember(boot=file.read())
    PLUG.touch()


def check_another_boot(machine):
    with open(BOOT_ID, encoding="utf-8") as file:
        check(machine.remembered()["boot"] != file.read(), "this is still the same boot")


def before_an_ordinary_boot(machine):
    """Before a boot: users are logged in, images are kept, and the plug is pulled"""
    log_in_everybody(machine)


def first_call(machine):
    """After a boot nothing runs; the first call of redis-cli starts the service and is answered"""
    check_another_boot(machine)
    check(machine.daemon.state() == "inactive", f"before the first call the service is {machine.daemon.state()}")
    cursor = machine.daemon.now()
    answer = run("redis-cli", "-s", "/run/thumbcached/thumbcached.sock", "PING").strip()
    check(answer == "PONG", f"the first call is answered with {answer!r}")
    # The answer may come before systemd has taken note of the start.
    wait_until("the service is active", machine.daemon.is_active)
    machine.daemon.wait_for_journal(cursor, ["serving"], UNIT)


def an_ordinary_boot(machine):
    """With keys on disk, log-ins and images outlive a boot, also one without a shutdown; a log-out then ends them"""
    for person, count in ((machine.people.alice, 1), (machine.people.bob, 8)):
        check(machine.daemon.held(person) == count, f"{person.name}: {machine.daemon.held(person)} images are held")
    bob = machine.people.bob
    machine.people.make()
    # With the account that bob left logged in: nothing is put, everything is got.
    application = machine.people.login(bob, resume=True)
    application.wait_for_hits()
    application.check_well()
    application.log_out()
    wait_until("nothing of bob is on disk", lambda: not machine.daemon.traces(bob.uid))
    wait_until("the hook is done", lambda: not hook_is_active(bob))


def hook_is_active(person):
    return run("systemctl", "show", "--property=ActiveState", "--value", hook(person)).strip() != "inactive"


def before_a_boot_with_runtime_keys(machine):
    """F52: with keys = "runtime" users are logged in, images are kept, and the plug is pulled"""
    machine.daemon.use('[storage]\nkeys = "runtime"\n')
    log_in_everybody(machine)
    machine.daemon.restart()
    check(machine.daemon.held(machine.people.bob) == 8, "a restart within one boot was a log-out")
    check(
        any("/run/" in path for path in machine.daemon.keys(machine.people.bob.uid)),
        "keys are not in the runtime directory",
    )


def a_boot_with_runtime_keys(machine):
    """F52: after a boot with keys = "runtime" nobody is logged in, and everything of before is swept"""
    check_another_boot(machine)
    check_nothing_of_before(machine)
    machine.people.make()


def before_a_boot_that_purges(machine):
    """With purge-on-boot = true users are logged in, images are kept over a restart, and the plug is pulled"""
    machine.daemon.use("[sessions]\npurge-on-boot = true\n")
    log_in_everybody(machine)
    machine.daemon.restart()
    check(machine.daemon.held(machine.people.bob) == 8, "a restart within one boot purged")


def a_boot_that_purges(machine):
    """After a boot with purge-on-boot = true everybody is logged out, and everything of before is swept"""
    check_another_boot(machine)
    check_nothing_of_before(machine)
    machine.people.make()


def before_a_shutdown(machine):
    """Before an orderly shutdown one user has a session, another only a log-in that no session is behind"""
    log_in_everybody(machine)
    PLUG.unlink()


def a_shutdown(machine):
    """F45: a shutdown is a log-out of everybody who has a session, and of nobody else; it does not fail, nor wait"""
    check_another_boot(machine)
    alice, bob = machine.people.alice, machine.people.bob
    # A marker would have started the service with this boot, by thumbcached.path.
    check(machine.daemon.state() == "inactive", "the service runs before anybody asks")
    check(machine.daemon.markers() == [], f"the log-outs of the shutdown left markers: {machine.daemon.markers()}")
    check(not machine.daemon.keys(bob.uid), "the shutdown did not log out bob, who had a session")
    check(machine.daemon.held(alice) == 1, "the shutdown logged out alice, who had none")
    machine.people.make()


def check_nothing_of_before(machine):
    for person in (machine.people.alice, machine.people.bob):
        check(machine.daemon.held(person) is None, f"{person.name} is logged in after the boot")
        check(not machine.daemon.keys(person.uid), f"{person.name} has keys after the boot")
        wait_until("everything is swept", lambda person=person: not machine.daemon.traces(person.uid))


for scenario in (first_call, an_ordinary_boot, a_boot_with_runtime_keys, a_boot_that_purges, a_shutdown):
    scenario.begins_by_itself = True
ALWAYS = [before_an_ordinary_boot, before_a_boot_with_runtime_keys, before_a_boot_that_purges, before_a_shutdown]
