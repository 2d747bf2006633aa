"""Machines that are network namespaces, on one switch that is a namespace, too. Nothing of it touches the network of
the machine that it runs on."""

import os
import subprocess

SUBNET = "10.77.0"


class Network:
    def __init__(self):
        self.prefix = f"tcfleet{os.getpid()}"
        self.switch = f"{self.prefix}-switch"
        self.machines = []
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")

    def add(self, name):
        machine = NetworkMachine(self, name, f"{SUBNET}.{len(self.machines) + 1}")
        self.machines.append(machine)
        return machine

    def end(self):
        for namespace in [machine.namespace for machine in self.machines] + [self.switch]:
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)


class NetworkMachine:
    """A namespace with one cable to the switch."""

    def __init__(self, network, name, address):
        self.name, self.address, self.network = name, address, network
        self.namespace = f"{network.prefix}-{name}"
        self.port = f"to-{name}"
        ip("netns", "add", self.namespace)
        ip("-n", self.namespace, "link", "set", "lo", "up")
        ip("-n", network.switch, "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns",
           self.namespace)  # fmt: skip
        ip("-n", network.switch, "link", "set", self.port, "master", "bridge")
        ip("-n", self.namespace, "address", "add", f"{address}/24", "dev", "eth0")
        ip("-n", self.namespace, "link", "set", "eth0", "up")
        self.plug_in()

    def plug_in(self):
        ip("-n", self.network.switch, "link", "set", self.port, "up")

    def cut(self):
        """Nobody is told: what is sent simply never comes."""
        ip("-n", self.network.switch, "link", "set", self.port, "down")

    @property
    def wrapper(self):
        """Before a program's arguments. The program is the process that is started, not a child of it."""
        return ("ip", "netns", "exec", self.namespace)

    @property
    def dying_wrapper(self):
        """The same, for what ends when the thread that starts it does: also where this is killed with -9."""
        return ("setpriv", "--pdeathsig", "KILL", *self.wrapper)


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
