"""What befalls the fleet, and how it is healed."""

import time

from hosts import STREAM


class Faults:
    """All of one round. They are begun from the thread that made this: what they start again lives as long as that."""

    def __init__(self, hosts, servers, history, chance):
        self.hosts, self.servers, self.history, self.chance = hosts, servers, history, chance
        self.told = []
        self.losses = []
        self.kinds = {
            self.cut_hosts: 5,
            self.plug_hosts_in: 1,
            self.kill_relays: 4,
            self.kill_daemons: 4,
            self.hang_daemons: 3,
            self.delete_last_entry: 2,
            self.take_snapshot: 5,
            self.lose_master: 2,
            self.restart_master: 2,
            self.freeze_master: 1,
            self.cut_master: 1,
            self.kill_replica: 1,
            self.restore: 4,
            self.restore_what_was_when_hosts_went: 2,
        }

    def inject(self):
        kinds = list(self.kinds)
        kind = self.chance.choices(kinds, [self.kinds[kind] for kind in kinds])[0]
        start = self.history.now()
        told = kind()
        if told is None:
            return
        losing = (self.lose_master, self.restart_master, self.freeze_master, self.cut_master)
        loses = kind in losing or kind.__name__.startswith("restore")
        event = self.history.add(
            "fault", start, None if loses else self.history.now(), kind=kind.__name__.replace("_", " "), loses=loses,
            told=told,
        )  # fmt: skip
        if loses:
            self.losses.append(event)
        self.told.append(told)

    def some(self, most):
        return self.chance.sample(self.hosts, self.chance.randint(1, most))

    def cut_hosts(self):
        hosts = self.some(4)
        for host in hosts:
            host.machine.cut()
        return f"{names(hosts)} cut off"

    def plug_hosts_in(self):
        hosts = self.some(len(self.hosts))
        for host in hosts:
            host.machine.plug_in()
        return f"{names(hosts)} plugged in"

    def kill_relays(self):
        hosts = self.some(3)
        for host in hosts:
            host.kill_relay()
        again = self.chance.random() < 0.5
        if again:
            for host in hosts:
                host.start_relay()
        return f"relays of {names(hosts)} killed" + (" and started" if again else "")

    def kill_daemons(self):
        hosts = self.some(3)
        for host in hosts:
            host.kill_daemon()
        again = self.chance.random() < 0.5
        if again:
            for host in hosts:
                host.start_daemon()
        return f"daemons of {names(hosts)} killed" + (" and started" if again else "")

    def hang_daemons(self):
        """Their relays wait for them, and must neither look away nor done. They go on when all is healed."""
        hosts = self.some(2)
        for host in hosts:
            host.freeze_daemon()
        return f"daemons of {names(hosts)} hung"

    def delete_last_entry(self):
        node = self.servers.master()
        last = node.ask("XREVRANGE", STREAM, "+", "-", "COUNT", "1") if node else None
        if not last or not node.ask("XDEL", STREAM, last[0][0].decode()):
            return None
        return "last entry deleted"

    def take_snapshot(self):
        return "snapshot" if self.servers.take_snapshot() else None

    def lose_master(self):
        node = self.servers.master()
        if node is None:
            return None
        node.kill()
        return f"{node.name}, the master, killed"

    def restart_master(self):
        """It comes back with its last snapshot, and what was written since is lost, in its replica as well."""
        node = self.servers.master()
        if node is None:
            return None
        node.kill()
        node.start()
        return f"{node.name}, the master, killed and started"

    def freeze_master(self):
        """It is thawed when all is healed, and takes itself for the master until it learns better."""
        node = self.servers.master()
        if node is None:
            return None
        node.freeze()
        return f"{node.name}, the master, frozen"

    def cut_master(self):
        node = self.servers.master()
        if node is None:
            return None
        node.machine.cut()
        return f"{node.name}, the master, cut off"

    def kill_replica(self):
        node = self.servers.master()
        if node is None or not self.servers.other(node).is_running():
            return None
        self.servers.other(node).kill()
        return f"{self.servers.other(node).name}, the replica, killed"

    def restore(self):
        """A snapshot of any round before, or now and then nothing at all."""
        some = bool(self.servers.snapshots) and self.chance.random() < 0.85
        # Recent ones more often: they end where hosts that were cut off stand.
        last = len(self.servers.snapshots) - 1
        self.put_back(last - min(last, int(self.chance.expovariate(0.4))) if some else None)
        return "Redis restored from a snapshot" if some else "Redis emptied"

    def restore_what_was_when_hosts_went(self):
        """These hosts stand where the snapshot ends. What came between has to reach them all the same."""
        hosts = self.some(4)
        for host in hosts:
            host.machine.cut()
        if not self.servers.take_snapshot():
            return f"{names(hosts)} cut off"
        time.sleep(self.chance.uniform(0.5, 3))
        self.put_back(len(self.servers.snapshots) - 1)
        return f"{names(hosts)} cut off, and Redis restored from when they were"

    def put_back(self, number):
        for node in self.servers.nodes:
            node.machine.plug_in()
            node.thaw()
        self.servers.restore(None if number is None else self.servers.snapshots[number])

    def heal(self):
        for node in self.servers.nodes:
            node.machine.plug_in()
            node.thaw()
        named = self.servers.named() or self.servers.nodes[0]
        for node in (named, self.servers.other(named)):
            if node.is_running():
                continue
            if node is not named and self.chance.random() < 0.7:
                node.start("--replicaof", named.machine.address, "6379")
            else:
                node.start()  # with what it has; sentinels see to the rest
        for host in self.hosts:
            host.machine.plug_in()
            host.thaw_daemon()
            host.start()

    def healed(self):
        # What a server that is no longer the master was told may be lost a little later.
        for loss in self.losses:
            loss["end"] = self.history.now() + 15


def names(hosts):
    return " ".join(sorted(host.name for host in hosts))
