"""Boots: each scenario after a boot checks what a scenario before it prepared."""

import pathlib

from commands import run
from daemon import UNIT
from machine import EXCHANGE
from images import make_image
from resp import request
from waiting import check, wait_until

from scenarios.logout import hook

BOOT_ID = "/proc/sys/kernel/random/boot_id"

# A file that has run.py end this boot like a power cut.
POWER_CUT = EXCHANGE / "cut-power"


def log_in_users(machine):
    """Logs in without any hook that would log out: alice has no session; bob has one, but the power is cut."""
    alice, bob = machine.people.alice, machine.people.bob
    request("LOGIN", "mail@alice.example", uid=alice.uid)
    request("PUT", "mail@alice.example", "contact-0", make_image("alice's"), uid=alice.uid)
    machine.people.login(bob).wait_for_hits()
    with open(BOOT_ID, encoding="utf-8") as file:
        machine.remember(boot=file.read())
    POWER_CUT.touch()


def check_another_boot(machine):
    with open(BOOT_ID, encoding="utf-8") as file:
        check(machine.remembered()["boot"] != file.read(), "the machine was not rebooted")


def before_an_ordinary_boot(machine):
    """Before a power cut: users are logged in and images are stored"""
    log_in_users(machine)


def first_call(machine):
    """After a boot the service is inactive; the first request of redis-cli starts it and is answered"""
    check_another_boot(machine)
    check(machine.daemon.state() == "inactive", f"before the first request the service is {machine.daemon.state()}")
    cursor = machine.daemon.now()
    answer = run("redis-cli", "-s", "/run/thumbcached/thumbcached.sock", "PING").strip()
    check(answer == "PONG", f"the first request was answered with {answer!r}")
    # systemd may report the service as active only after the reply.
    wait_until("the service is active", machine.daemon.is_active)
    machine.daemon.wait_for_journal(cursor, ["serving"], UNIT)


def an_ordinary_boot(machine):
    """With keys on disk, logins and images survive a power cut; a logout then deletes them"""
    for person, count in ((machine.people.alice, 1), (machine.people.bob, 8)):
        check(machine.daemon.image_count(person) == count, f"{person.name} does not have {count} images")
    bob = machine.people.bob
    machine.people.make()
    # The account is still logged in: the application stores nothing and must find all images.
    application = machine.people.login(bob, resume=True)
    application.wait_for_hits()
    application.check_no_failures()
    application.log_out()
    wait_until("no file of bob remains", lambda: not machine.daemon.traces(bob.uid))
    wait_until("the hook has ended", lambda: not hook_is_active(bob))


def hook_is_active(person):
    return run("systemctl", "show", "--property=ActiveState", "--value", hook(person)).strip() != "inactive"


def before_a_boot_with_runtime_keys(machine):
    """F52: before a power cut with keys = "runtime": users are logged in and images are stored"""
    machine.daemon.use('[storage]\nkeys = "runtime"\n')
    log_in_users(machine)
    machine.daemon.restart()
    check(machine.daemon.image_count(machine.people.bob) == 8, "a restart without a boot logged out bob")
    check(
        any("/run/" in path for path in machine.daemon.keys(machine.people.bob.uid)),
        "the keys are not in the runtime directory",
    )


def a_boot_with_runtime_keys(machine):
    """F52: after a boot with keys = "runtime" no user is logged in and all earlier files are deleted"""
    check_another_boot(machine)
    check_nothing_of_before(machine)
    machine.people.make()


def before_a_boot_that_purges(machine):
    """Before a power cut with purge-on-boot = true: users are logged in and images survive a restart"""
    machine.daemon.use("[sessions]\npurge-on-boot = true\n")
    log_in_users(machine)
    machine.daemon.restart()
    check(machine.daemon.image_count(machine.people.bob) == 8, "a restart without a boot purged the store")


def a_boot_that_purges(machine):
    """After a boot with purge-on-boot = true no user is logged in and all earlier files are deleted"""
    check_another_boot(machine)
    check_nothing_of_before(machine)
    machine.people.make()


def before_a_shutdown(machine):
    """Before a shutdown: one user has a session, another one is logged in without a session"""
    log_in_users(machine)
    POWER_CUT.unlink()


def a_shutdown(machine):
    """F45: a shutdown logs out users with a session and no others, without failing or waiting"""
    check_another_boot(machine)
    alice, bob = machine.people.alice, machine.people.bob
    # A pending-logout file would have started the service with this boot, by thumbcached.path.
    check(machine.daemon.state() == "inactive", "the service runs before the first request")
    check(machine.daemon.pending_files() == [], f"the shutdown left {machine.daemon.pending_files()}")
    check(not machine.daemon.keys(bob.uid), "the shutdown did not log out bob, who had a session")
    check(machine.daemon.image_count(alice) == 1, "the shutdown logged out alice, who had no session")
    machine.people.make()


def check_nothing_of_before(machine):
    for person in (machine.people.alice, machine.people.bob):
        check(machine.daemon.image_count(person) is None, f"{person.name} is logged in after the boot")
        check(not machine.daemon.keys(person.uid), f"{person.name} has keys after the boot")
        wait_until("all files are deleted", lambda person=person: not machine.daemon.traces(person.uid))


for scenario in (first_call, an_ordinary_boot, a_boot_with_runtime_keys, a_boot_that_purges, a_shutdown):
    scenario.prepares_itself = True
ALWAYS = [before_an_ordinary_boot, before_a_boot_with_runtime_keys, before_a_boot_that_purges, before_a_shutdown]
