"""Rounds of a test: users and administrators act, faults are injected and repaired, and the history is checked."""

import collections
import random
import time

import checker
from harness import eventually
from faults import Faults
from history import History
from hosts import STREAM, Host
from network import Network
from people import USERS, People, read_disk, read_user
from servers import Servers

HOSTS = 8
HEALING = 90  # timeout in seconds


class Violation(Exception):
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

    def run_round(self, number):
        """Runs one round. Returns the faults as text and the seconds until the fleet settled."""
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
        self.check_processes()
        faults.heal()
        took = self.settle(f"round {number}")
        faults.healed()
        self.check(since)
        return ", ".join(faults.descriptions) or "nothing", took

    # Settling.

    def settle(self, when):
        """Waits until every host has acknowledged all entries, then reads all users. Returns the seconds."""
        start = self.history.now()
        deadline = time.monotonic() + HEALING
        while True:
            state = self.publish_last_entry()
            if state and eventually(lambda: self.behind(state) == [], timeout=5, pause=0.05):
                took = self.history.now() - start
                reads = [read_user(self.history, host, user, settled=True) for host in self.hosts for user in USERS]
                disks = [read_disk(self.history, host) for host in self.hosts]
                if None not in reads and self.behind(state) == []:
                    self.history.add("settled", start, self.history.now(), outcome="ok", why=when)
                    self.healing_times.append(took)
                    self.record_gaps()
                    return took
                for event in reads + disks:
                    if event is not None:
                        event["settled"] = False
            if time.monotonic() > deadline:
                why = f"{when}: {self.behind(state) if state else 'no master'}"
                self.history.add("settled", start, self.history.now(), outcome="failed", why=why)
                self.record_gaps()
                raise Violation(f"the fleet did not settle within {HEALING} s: {why}")

    def publish_last_entry(self):
        """Publishes an entry for all hosts to acknowledge. Returns the server, the id, and the time in milliseconds."""
        node = self.servers.master()
        if node is None:
            time.sleep(0.1)
            return None
        now = int(time.time() * 1000)
        reply = node.ask("XADD", STREAM, "*", "op", "logout", "user", "nobody")
        return (node, reply.decode(), now) if reply else None

    def behind(self, state):
        """Returns the hosts that have not acknowledged the last entry, or the reason why none can have."""
        node, last_entry, published = state
        if self.servers.named() is not node:
            return ["another master"]
        incarnation, table = node.ask("GET", f"{STREAM}:incarnation"), node.ask("HGETALL", f"{STREAM}:hosts")
        last = node.ask("XREVRANGE", STREAM, "+", "-", "COUNT", "1")
        if not incarnation or table is None or not last or last[0][0].decode() != last_entry:
            return ["another stream"]
        said = {name.decode(): value.decode().split() for name, value in zip(table[::2], table[1::2])}
        return [
            host.name
            for host in self.hosts
            if host.name not in said
            or said[host.name][0] != last_entry
            or int(said[host.name][1]) < published
            or said[host.name][2] != incarnation.decode()
        ]

    def record_gaps(self):
        for host in self.hosts:
            self.history.extend(host.new_gaps())

    # Checks.

    def check_processes(self):
        for host in self.hosts:
            if dead := host.crashed_process():
                raise Violation(f"{host.name}: {dead} ended without being killed")

    def check(self, since):
        found = checker.violations(self.history.events, since)
        found += [f"{host.name}: {line}" for host in self.hosts for line in host.crashes()]
        if found:
            raise Violation("\n".join(found[:20]))

    def summary(self):
        """Returns a summary of the run, as lines."""
        history = self.history
        counted = collections.Counter(event["kind"] for event in history.events if event["op"] == "fault")
        commands = [event for event in history.events if event["op"] in ("logout", "purge")]
        acknowledged = [command for command in commands if command["status"] == 0]
        away = sum("away" in command["hosts"].values() or len(command["hosts"]) < HOSTS for command in acknowledged)
        reads = [event for event in history.events if event["op"] == "read"]
        gone = sum(event["answer"] == "NOLOGIN" for event in reads)
        healing = sorted(self.healing_times) or [0]
        return [
            "faults: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items())),
            f"logins {history.count('login', outcome='ok')}, images {history.count('put', outcome='ok')}",
            f"logouts and purges {len(commands)}: {len(acknowledged)} acknowledged, {away} of them while a host was "
            f"away; {sum(command['status'] == 1 for command in commands)} published but not completed",
            f"reads {len(reads)}: NOLOGIN {gone}, logged in {len(reads) - gone}; "
            f"gaps closed {history.count('gap')}",
            f"settled within {healing[len(healing) // 2]:.1f} s (median), {healing[-1]:.1f} s at most",
        ]
