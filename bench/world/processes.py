"""Starts, monitors and stops the programs of a run, each by its process id."""

import contextlib
import os
import pathlib
import resource
import signal
import socket
import subprocess
import time

TICKS = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A program failed or returned an unexpected result."""


def raise_descriptor_limit():
    """Raises the limit of open files for this process and its children: a thousand connections exceed the default."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def find(*names):
    """Path of the first of these programs that is installed. Also searches the sbin directories, which an ordinary
    user's PATH lacks.

    Raises Failed if none is installed.
    """
    folders = os.environ.get("PATH", "").split(":") + ["/usr/local/sbin", "/usr/sbin", "/sbin"]
    for name in names:
        for folder in folders:
            path = pathlib.Path(folder, name)
            if folder and os.access(path, os.X_OK):
                return str(path)
    raise Failed(f"{' or '.join(names)} is not installed: run tools/install-dependencies bench")


def run(words, **options):
    """Runs a program to completion and returns its output."""
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, timeout=options.pop("timeout", 300), **options)
    if done.returncode != 0:
        output = (done.stderr or done.stdout).decode(errors="replace").strip()[-400:]
        raise Failed(f"{' '.join(words)[:120]}: status {done.returncode}: {output}")
    return done.stdout.decode(errors="replace")


class Server:
    """A running server. As a context manager, it is always stopped at the end."""

    def __init__(self, name, words, log, core=None):
        self.name = name
        self.log = log
        words = [str(word) for word in words]
        if core is not None:
            words = [find("taskset"), "-c", str(core)] + words
        with open(log, "ab") as out:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, how=signal.SIGTERM):
        """Stops the server, by SIGKILL after a timeout, and its children, so that they do not disturb the next
        measurement. Does nothing if the server has ended.
        """
        if self.process.returncode is not None:
            return  # The id may have been reused.
        children = [(pid, start_time(pid)) for pid in self.pids()[1:]]
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        # Children end by themselves. A SIGKILL to a helper and its child at once keeps a core busy for seconds, in
        # shrink_dcache_parent() of the kernel.
        if not have_ended(children, 5):
            for pid, start in children:
                if start is not None and start_time(pid) == start:
                    with contextlib.suppress(ProcessLookupError):  # It ended meanwhile.
                        os.kill(pid, signal.SIGKILL)
            if not have_ended(children, 20):
                raise Failed(f"{self.name}: its child processes do not end after SIGKILL")

    def pids(self):
        """Returns the ids of the process and all its descendants."""
        pids = [self.process.pid]
        for pid in pids:
            try:
                for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                    pids += [int(child) for child in (task / "children").read_text().split()]
            except OSError:
                pass  # It has ended.
        return pids

    def cpu(self):
        """Returns the CPU time in seconds, of all its processes: fields 14 and 15 of proc_pid_stat(5)."""
        total = 0
        for pid in self.pids():
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICKS

    def resident(self):
        """Returns the resident memory in bytes: VmRSS of proc_pid_status(5)."""
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise Failed(f"{self.name} has ended: {self.log_tail()}")

    def log_tail(self):
        return pathlib.Path(self.log).read_text(errors="replace").strip()[-400:] or "(empty log)"

    def wait_for(self, address, seconds=30, pause=0.005):
        """Waits until a path or a local TCP port accepts connections; polls every `pause` seconds.

        Stops the server on failure.
        """
        try:
            return self._wait_for(address, seconds, pause)
        except BaseException:
            self.stop()
            raise

    def _wait_for(self, address, seconds, pause):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Failed(f"{self.name} ended with status {self.process.returncode}: {self.log_tail()}")
            try:
                connect(address).close()
                return self
            except OSError:
                time.sleep(pause)
        raise Failed(f"{self.name} does not listen at {address} after {seconds} s: {self.log_tail()}")


def have_ended(started, seconds):
    """Returns whether the processes, pairs of id and start time, ended within `seconds`. A zombie counts as ended."""
    deadline = time.monotonic() + seconds
    while any(start is not None and start_time(pid) == start for pid, start in started):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def start_time(pid):
    """Returns the start time of a running process, which distinguishes it from a later one with the same id; None if it
    has ended: fields 3 and 22 of proc_pid_stat(5).
    """
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def connect(address):
    """Connects a stream socket to a path or to a local TCP port."""
    if isinstance(address, int):
        return socket.create_connection(("127.0.0.1", address), timeout=60)
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(120)
    try:
        stream.connect(str(address))
    except OSError:
        stream.close()
        raise
    return stream


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
