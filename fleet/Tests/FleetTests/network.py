"""Hosts and a switch as network namespaces. Does not change the network of the machine that runs the test."""

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
    """A namespace with one link to the switch."""

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
        self.reconnect()

    def reconnect(self):
        ip("-n", self.network.switch, "link", "set", self.port, "up")

    def disconnect(self):
        """Takes the link down without any notification: packets are dropped."""
        ip("-n", self.network.switch, "link", "set", self.port, "down")

    @property
    def wrapper(self):
        """Command prefix that runs a program in the namespace; the started process becomes the program."""
        return ("ip", "netns", "exec", self.namespace)

    @property
    def dying_wrapper(self):
        """Like `wrapper`; the program is also killed when the thread that started it ends for any reason."""
        return ("setpriv", "--pdeathsig", "KILL", *self.wrapper)


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
