"""Injects faults into the fleet, and repairs them."""

import time

from hosts import STREAM


class Faults:
    """The faults of one round. Processes end with the thread that started them, so all methods run in one thread."""

    def __init__(self, hosts, servers, history, chance):
        self.hosts, self.servers, self.history, self.chance = hosts, servers, history, chance
        self.descriptions = []
        self.losses = []
        self.kinds = {
            self.disconnect_hosts: 5,
            self.reconnect_hosts: 1,
            self.kill_relays: 4,
            self.kill_daemons: 4,
            self.freeze_daemons: 3,
            self.delete_last_entry: 2,
            self.take_snapshot: 5,
            self.kill_master: 2,
            self.restart_master: 2,
            self.freeze_master: 1,
            self.disconnect_master: 1,
            self.kill_replica: 1,
            self.restore: 4,
            self.restore_after_disconnecting_hosts: 2,
        }

    def inject(self):
        kinds = list(self.kinds)
        kind = self.chance.choices(kinds, [self.kinds[kind] for kind in kinds])[0]
        start = self.history.now()
        description = kind()
        if description is None:
            return
        losing = (self.kill_master, self.restart_master, self.freeze_master, self.disconnect_master)
        loses = kind in losing or kind.__name__.startswith("restore")
        event = self.history.add(
            "fault", start, None if loses else self.history.now(), kind=kind.__name__.replace("_", " "), loses=loses,
            description=description,
        )  # fmt: skip
        if loses:
            self.losses.append(event)
        self.descriptions.append(description)

    def some(self, most):
        return self.chance.sample(self.hosts, self.chance.randint(1, most))

    def disconnect_hosts(self):
        hosts = self.some(4)
        for host in hosts:
            host.machine.disconnect()
        return f"{names(hosts)} cut off"

    def reconnect_hosts(self):
        hosts = self.some(len(self.hosts))
        for host in hosts:
            host.machine.reconnect()
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

    def freeze_daemons(self):
        """Stops daemons by SIGSTOP until heal(). Their relays must appear neither away nor done."""
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

    def kill_master(self):
        node = self.servers.master()
        if node is None:
            return None
        node.kill()
        return f"{node.name}, the master, killed"

    def restart_master(self):
        """The master restarts with its last snapshot; later writes are lost, in the replica as well."""
        node = self.servers.master()
        if node is None:
            return None
        node.kill()
        node.start()
        return f"{node.name}, the master, killed and started"

    def freeze_master(self):
        """Stops the master by SIGSTOP until heal(); then it acts as the master until it learns of the failover."""
        node = self.servers.master()
        if node is None:
            return None
        node.freeze()
        return f"{node.name}, the master, frozen"

    def disconnect_master(self):
        node = self.servers.master()
        if node is None:
            return None
        node.machine.disconnect()
        return f"{node.name}, the master, cut off"

    def kill_replica(self):
        node = self.servers.master()
        if node is None or not self.servers.other(node).is_running():
            return None
        self.servers.other(node).kill()
        return f"{self.servers.other(node).name}, the replica, killed"

    def restore(self):
        """Restores one of the earlier snapshots, or in some cases an empty database."""
        some = bool(self.servers.snapshots) and self.chance.random() < 0.85
        # Recent snapshots are more likely, because they end near the positions of disconnected hosts.
        last = len(self.servers.snapshots) - 1
        self.restore_snapshot(last - min(last, int(self.chance.expovariate(0.4))) if some else None)
        return "Redis restored from a snapshot" if some else "Redis emptied"

    def restore_after_disconnecting_hosts(self):
        """Restores a snapshot that ends at the positions of disconnected hosts; they must not miss later entries."""
        hosts = self.some(4)
        for host in hosts:
            host.machine.disconnect()
        if not self.servers.take_snapshot():
            return f"{names(hosts)} cut off"
        time.sleep(self.chance.uniform(0.5, 3))
        self.restore_snapshot(len(self.servers.snapshots) - 1)
        return f"{names(hosts)} cut off, and Redis restored from when they were"

    def restore_snapshot(self, number):
        for node in self.servers.nodes:
            node.machine.reconnect()
            node.thaw()
        self.servers.restore(None if number is None else self.servers.snapshots[number])

    def heal(self):
        for node in self.servers.nodes:
            node.machine.reconnect()
            node.thaw()
        named = self.servers.named() or self.servers.nodes[0]
        for node in (named, self.servers.other(named)):
            if node.is_running():
                continue
            if node is not named and self.chance.random() < 0.7:
                node.start("--replicaof", named.machine.address, "6379")
            else:
                node.start()  # with its own data; the Sentinels reconfigure it
        for host in self.hosts:
            host.machine.reconnect()
            host.thaw_daemon()
            host.start()

    def healed(self):
        # Writes to a former master may be lost some time later.
        for loss in self.losses:
            loss["end"] = self.history.now() + 15


def names(hosts):
    return " ".join(sorted(host.name for host in hosts))
