"""A Redis master, a replica and three Sentinels, each in its own network namespace."""

import shutil
import signal
import subprocess

from harness import Client, ErrorReply, eventually

MASTER = "fleet"
PORT = 6379
SENTINEL_PORT = 26379


class Server:
    """A process that can be killed and started again with its configuration file, which the process rewrites."""

    def __init__(self, machine, home, arguments=()):
        self.machine, self.home, self.arguments = machine, home, arguments
        self.name = machine.name
        self.configuration = home / "server.conf"
        self.path = home / "socket"
        self.process = None
        home.mkdir()

    def start(self, *more):
        argv = [*self.machine.dying_wrapper, "redis-server", self.configuration, *self.arguments, *more]
        with open(self.home / "log", "ab") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home)
        if not eventually(lambda: self.ask("PING") is not None):
            raise OSError(f"{self.name} does not start: {(self.home / 'log').read_text()[-1000:]}")

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """Sends SIGKILL."""
        if self.is_running():
            self.process.kill()
            self.process.wait()

    def freeze(self):
        if self.is_running():
            self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        if self.is_running():
            self.process.send_signal(signal.SIGCONT)

    def ask(self, *words):
        """Returns the reply; None without a reply or for an error reply."""
        try:
            with Client(self.path, timeout=3) as client:
                reply = client.call(*words)
        except (OSError, EOFError):
            return None
        return None if isinstance(reply, ErrorReply) else reply


class Redis(Server):
    def __init__(self, machine, home, master=None):
        super().__init__(machine, home)
        self.dump = home / "dump.rdb"
        lines = [
            f"port {PORT}", "protected-mode no", f"unixsocket {self.path}", 'save ""', "appendonly no", f"dir {home}",
            f"replica-announce-ip {machine.address}", "repl-diskless-sync-delay 0", "repl-ping-replica-period 1",
            "repl-timeout 5", "latency-tracking no", "tcp-keepalive 1",
        ]  # fmt: skip
        if master:
            lines.append(f"replicaof {master.machine.address} {PORT}")
        self.configuration.write_text("\n".join(lines) + "\n")

    def role(self):
        answer = self.ask("ROLE")
        return answer[0].decode() if answer else None

    def replicas(self):
        answer = self.ask("ROLE")
        return len(answer[2]) if answer and answer[0] == b"master" else 0


class Sentinel(Server):
    def __init__(self, machine, home, master):
        super().__init__(machine, home, ["--sentinel"])
        self.configuration.write_text(
            f"port {SENTINEL_PORT}\nprotected-mode no\nunixsocket {self.path}\ndir {home}\n"
            f"sentinel announce-ip {machine.address}\n"
            f"sentinel monitor {MASTER} {master.machine.address} {PORT} 2\n"
            f"sentinel down-after-milliseconds {MASTER} 1000\nsentinel failover-timeout {MASTER} 3000\n"
        )

    def master(self):
        """Returns the master's address."""
        answer = self.ask("SENTINEL", "get-master-addr-by-name", MASTER)
        return answer[0].decode() if answer else None


class Servers:
    def __init__(self, network, home):
        first = Redis(network.add("redis1"), home / "redis1")
        self.nodes = [first, Redis(network.add("redis2"), home / "redis2", first)]
        self.sentinels = [
            Sentinel(network.add(f"sentinel{n}"), home / f"sentinel{n}", first) for n in (1, 2, 3)
        ]
        self.snapshots = []
        self.folder = home / "snapshots"
        self.folder.mkdir()

    def start(self):
        for server in self.nodes + self.sentinels:
            server.start()
        if not eventually(self.is_whole):
            raise OSError("the sentinels do not find each other and the replica")

    def is_whole(self):
        """Whether all Sentinels know the replica and each other, so that a failover is possible."""
        if not self.nodes[0].replicas():
            return False
        for sentinel in self.sentinels:
            known = sentinel.ask("SENTINEL", "master", MASTER)
            if not known:
                return False
            known = dict(zip(known[::2], known[1::2]))
            if known[b"num-slaves"] != b"1" or known[b"num-other-sentinels"] != b"2":
                return False
        return True

    @property
    def addresses(self):
        return [f"{sentinel.machine.address}:{SENTINEL_PORT}" for sentinel in self.sentinels]

    def named(self):
        """Returns the node that at least two Sentinels name as the master, or None."""
        said = [sentinel.master() for sentinel in self.sentinels]
        for node in self.nodes:
            if said.count(node.machine.address) >= 2:
                return node
        return None

    def master(self):
        """Returns the named master if it runs and reports the role master, or None."""
        node = self.named()
        return node if node is not None and node.is_running() and node.role() == "master" else None

    def other(self, node):
        return self.nodes[1 - self.nodes.index(node)]

    def take_snapshot(self):
        """Saves a snapshot, as BGSAVE or a backup does. A killed master also starts with its last snapshot."""
        node = self.master()
        if node is None or node.ask("SAVE") != b"OK":
            return False
        target = self.folder / f"{len(self.snapshots)}.rdb"
        shutil.copy(node.dump, target)
        self.snapshots.append(target)
        return True

    def restore(self, snapshot):
        """Restores a snapshot as an operator does: stops both servers, replaces the file, starts the master first."""
        node = self.named() or self.nodes[0]
        replica = self.other(node)
        for server in (replica, node):
            server.kill()
        replica.dump.unlink(missing_ok=True)
        if snapshot is None:
            node.dump.unlink(missing_ok=True)
        else:
            shutil.copy(snapshot, node.dump)
        node.start("--replicaof", "no", "one")
        replica.start("--replicaof", node.machine.address, str(PORT))

    def kill_all(self):
        for server in self.nodes + self.sentinels:
            server.thaw()
            server.kill()
