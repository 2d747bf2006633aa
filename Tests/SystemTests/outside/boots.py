"""Boots the tree once for each group of scenarios and reports the results that run.py writes."""

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import report as reports

# Seconds for one boot with its scenarios.
BOOT_LIMIT = 30 * 60
# systemd-nspawn requires that /run is a mount point, so it gets a mount namespace with its own /run.
NAMESPACE = ["unshare", "--mount", "--propagation", "private"]
OWN_RUN = ["sh", "-c", 'mount -t tmpfs -o mode=755 tmpfs /run && exec "$@"', "sh"]
MEMORY_CGROUP = pathlib.Path("/sys/fs/cgroup/memory")


class Machine:
    """The tree, booted and powered off until all scenarios have run."""

    def __init__(self, tree, inside, folder):
        self.tree = tree
        self.inside = inside
        self.console = (folder / "console.log").open("w")
        self.exchange = tree / "var/lib/system-test"
        self.memory = None
        self.process = None

    def __enter__(self):
        # So that SIGTERM also stops the booted machine.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        if (MEMORY_CGROUP / "memory.limit_in_bytes").exists():
            # With cgroup version 1, nspawn has no memory controller; this group replaces it.
            self.memory = MEMORY_CGROUP / f"thumbcached-system-test-{os.getpid()}"
            self.memory.mkdir()
        return self

    def __exit__(self, *_):
        self.stop()
        self.console.close()
        if self.memory is not None:
            remove_group(self.memory)

    def run(self, rounds, only):
        report = reports.Report()
        number = 1
        while True:
            options = {"boot": number, "rounds": rounds, "only": only}
            (self.exchange / "options.json").write_text(json.dumps(options))
            results = self.exchange / f"results-{number}.jsonl"
            self.boot()
            try:
                has_more = self.follow(results, report)
            finally:
                self.stop()
            if not has_more:
                return report
            number += 1

    def boot(self):
        command = NAMESPACE + OWN_RUN + ["systemd-nspawn", "--quiet", "--boot", "--directory", str(self.tree)]
        command += ["--register=no", "--keep-unit", "--private-network", "--link-journal=no", "--resolv-conf=off"]
        # System calls that nspawn denies by default and a real machine permits.
        command += ["--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self pidfd_getfd"]
        command += ["--timezone=off", "--console=pipe", f"--bind-ro={self.inside}:/opt/system-test"]
        if self.memory is not None:
            command += [f"--bind={self.memory}:/opt/memory-cgroup"]
        (self.tree / "opt/memory-cgroup").mkdir(exist_ok=True)
        # A unique name, because nspawn takes a lock by name.
        command += [f"--machine=thumbcached-system-test-{os.getpid()}"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )

    def follow(self, results, report):
        """Reports results until the machine is off. Returns whether scenarios remain for another boot."""
        deadline = time.monotonic() + BOOT_LIMIT
        lines = reports.Lines(results)
        has_more = None
        while True:
            ended = self.process.poll() is not None
            for record in lines.new():
                if "more" in record:
                    has_more = record["more"]
                else:
                    report.add(record)
            if ended:
                break
            if time.monotonic() > deadline:
                report.fail("a boot", f"the machine was still running after {BOOT_LIMIT} s")
                return False
            time.sleep(0.2)
        if has_more is None:
            console = pathlib.Path(self.console.name)
            tail = "\n".join(console.read_text(errors="replace").splitlines()[-30:])
            report.fail("a boot", f"the machine powered off before all scenarios had run; its console:\n{tail}")
        report.fail_missing()
        return bool(has_more)

    def stop(self):
        if self.process is None or self.process.poll() is not None:
            return
        # self.process is nspawn. Its child is the init process of the machine; killing it ends all other processes.
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for child in children.read_text().split():
            os.kill(int(child), signal.SIGKILL)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def remove_group(group):
    """Removes a control group; retries, because the kernel releases it shortly after its last process has ended."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return group.rmdir()
        except OSError as error:
            if time.monotonic() > deadline:
                print(f"test-system: could not remove {group}: {error}", file=sys.stderr)
                return
            time.sleep(0.1)


def end_with_parent():
    """Called in the child process: has nspawn shut down the machine when this program is killed."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
