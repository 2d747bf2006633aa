"""Rounds: people use a fleet, faults befall it, it is healed, and what it promised is looked at."""

import collections
import random
import time

import checker
from beside import eventually
from faults import Faults
from history import History
from hosts import STREAM, Host
from network import Network
from people import USERS, People, look, look_at_disk
from servers import Servers

HOSTS = 8
HEALING = 90  # seconds, at most


class Contradiction(Exception):
    pass


class Fleet:
    def __init__(self, programs, home, seed):
        self.programs, self.home, self.seed = programs, home, seed
        self.chance = random.Random(seed)
        self.history = History()
        self.healing_times = []
        self.network = Network()
        self.hosts, self.servers = [], None

    def __enter__(self):
        try:
            self.servers = Servers(self.network, self.home)
            for number in range(1, HOSTS + 1):
                name = f"host{number}"
                (self.home / name).mkdir()
                machine = self.network.add(name)
                self.hosts.append(Host(machine, self.home / name, self.programs, self.servers))
            self.servers.start()
            for host in self.hosts:
                host.start()
            self.settle("the start")
            return self
        except BaseException:
            self.end()
            raise

    def __exit__(self, *_):
        self.end()

    def end(self):
        for host in self.hosts:
            host.kill_relay()
            host.kill_daemon()
        if self.servers:
            self.servers.kill_all()
        self.network.end()

    def play(self, number):
        """Gives what befell it, in words."""
        since = self.history.now()
        people = People(self.hosts, self.programs, self.history, f"{self.seed}-{number}")
        faults = Faults(self.hosts, self.servers, self.history, self.chance)
        try:
            for _ in range(self.chance.randint(2, 7)):
                time.sleep(self.chance.uniform(0.1, 1))
                faults.inject()
            time.sleep(self.chance.uniform(0, 1.5))
        finally:
            people.stop()
        self.look_for_the_dead()
        faults.heal()
        took = self.settle(f"round {number}")
        faults.healed()
        self.judge(since)
        return ", ".join(faults.told) or "nothing", took

    # Healing.

    def settle(self, when):
        """Waits until every host has done everything, and looks at all of them. Gives the seconds that took."""
        start = self.history.now()
        deadline = time.monotonic() + HEALING
        while True:
            state = self.publish_marker()
            if state and eventually(lambda: self.behind(state) == [], patience=5, pause=0.05):
                took = self.history.now() - start
                looks = [look(self.history, host, user, settled=True) for host in self.hosts for user in USERS]
                disks = [look_at_disk(self.history, host) for host in self.hosts]
                if None not in looks and self.behind(state) == []:
                    self.history.add("settled", start, self.history.now(), outcome="ok", why=when)
                    self.healing_times.append(took)
                    self.note_gaps()
                    return took
                for event in looks + disks:
                    if event is not None:
                        event["settled"] = False
            if time.monotonic() > deadline:
                why = f"{when}: {self.behind(state) if state else 'there is no master'}"
                self.history.add("settled", start, self.history.now(), outcome="failed", why=why)
                self.note_gaps()
                raise Contradiction(f"the fleet did not heal in {HEALING} s: {why}")

    def publish_marker(self):
        """An entry that is everybody's end: the server that has it, its id, and the milliseconds before it."""
        node = self.servers.master()
        if node is None:
            time.sleep(0.1)
            return None
        now = int(time.time() * 1000)
        reply = node.ask("XADD", STREAM, "*", "op", "logout", "user", "nobody")
        return (node, reply.decode(), now) if reply else None

    def behind(self, state):
        """The hosts that have not done everything, or what else is not as it should be."""
        node, marker, published = state
        if self.servers.named() is not node:
            return ["another master"]
        incarnation, table = node.ask("GET", f"{STREAM}:incarnation"), node.ask("HGETALL", f"{STREAM}:hosts")
        last = node.ask("XREVRANGE", STREAM, "+", "-", "COUNT", "1")
        if not incarnation or table is None or not last or last[0][0].decode() != marker:
            return ["another stream"]
        said = {name.decode(): value.decode().split() for name, value in zip(table[::2], table[1::2])}
        return [
            host.name
            for host in self.hosts
            if host.name not in said
            or said[host.name][0] != marker
            or int(said[host.name][1]) < published
            or said[host.name][2] != incarnation.decode()
        ]

    def note_gaps(self):
        for host in self.hosts:
            self.history.extend(host.new_gaps())

    # Judging.

    def look_for_the_dead(self):
        for host in self.hosts:
            if dead := host.dead():
                raise Contradiction(f"on {host.name} {dead} ended without being killed")

    def judge(self, since):
        found = checker.violations(self.history.events, since)
        found += [f"{host.name}: {line}" for host in self.hosts for line in host.crashes()]
        if found:
            raise Contradiction("\n".join(found[:20]))

    def figures(self):
        """What a run amounts to, in lines."""
        history = self.history
        counted = collections.Counter(event["kind"] for event in history.events if event["op"] == "fault")
        orders = [event for event in history.events if event["op"] in ("logout", "purge")]
        acknowledged = [order for order in orders if order["status"] == 0]
        away = sum("away" in order["hosts"].values() or len(order["hosts"]) < HOSTS for order in acknowledged)
        looks = [event for event in history.events if event["op"] == "look"]
        gone = sum(event["answer"] == "NOLOGIN" for event in looks)
        healing = sorted(self.healing_times) or [0]
        return [
            "faults: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items())),
            f"log-ins {history.count('login', outcome='ok')}, pictures {history.count('put', outcome='ok')}",
            f"log-outs and purges {len(orders)}, of which acknowledged {len(acknowledged)}, {away} of them while a "
            f"host was away; published and owed {sum(order['status'] == 1 for order in orders)}",
            f"looks {len(looks)}: NOLOGIN {gone}, logged in {len(looks) - gone}; "
            f"gaps made up for {history.count('gap')}",
            f"healed in {healing[len(healing) // 2]:.1f} s (median), {healing[-1]:.1f} s at most",
        ]
