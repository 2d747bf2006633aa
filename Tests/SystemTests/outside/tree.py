"""The Debian tree: made once by debootstrap, kept, and copied for every run."""

import hashlib
import pathlib
import shutil
import subprocess
import uuid

SUITE = "bookworm"
# systemd with logind and PAM, and what the scenarios use. The libraries are those that the package depends on, since it
# is installed without a network.
PACKAGES = """
    systemd systemd-sysv dbus libpam-systemd login passwd procps util-linux
    adduser libc-ares2 libcurl4 libssl3 libvips42 libseccomp2 ca-certificates
    python3 redis-tools openssh-server openssh-client
""".split()
# What would run beside the scenarios by itself, at a time of its own choosing.
MASKED = """
    console-getty.service getty.target apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer
    e2scrub_all.timer fstrim.timer systemd-tmpfiles-clean.timer man-db.timer
""".split()
# Log-outs are followed at once; the scenario about the ten seconds of logind's default removes this file.
LOGIND = "[Login]\nUserStopDelaySec=0\n"
JOURNALD = "[Journal]\nStorage=persistent\nRateLimitIntervalSec=0\nForwardToConsole=no\n"
# Users log in here more often than five times in ten seconds.
MANAGER = "[Manager]\nDefaultStartLimitBurst=1000\n"
RUNNER = """[Unit]
Description=Scenarios
After=dbus.service systemd-logind.service systemd-user-sessions.service

[Service]
# Boot is over although this runs.
Type=exec
ExecStart=/usr/bin/python3 -B /opt/system-test/run.py
# Also when it crashes: whoever booted this machine waits for its end.
ExecStopPost=/bin/systemctl --no-block poweroff
"""


class CannotMake(Exception):
    """There is no tree, and why."""


def fresh(folder):
    """A copy of the base tree to boot, in folder/run.

    Raises CannotMake. Costs some minutes where there is no base tree yet, else some seconds.
    """
    base = base_tree(folder)
    run = folder / "run"
    if run.exists():
        shutil.rmtree(run)
    subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(run)], check=True)
    furnish(run)
    return run


def base_tree(folder):
    key = hashlib.sha256(" ".join([SUITE, *PACKAGES]).encode()).hexdigest()[:12]
    base = folder / f"base-{key}"
    if base.is_dir():
        return base
    for old in folder.glob("base-*"):
        shutil.rmtree(old)
    print(f"Making a Debian tree in {base}: some minutes, this once", flush=True)
    partial = folder / "base-partial"
    log = folder / "debootstrap.log"
    # In a mount namespace of its own: what debootstrap mounts goes with it, however it ends.
    command = ["unshare", "--mount", "--propagation", "private", "debootstrap", "--variant=minbase"]
    command += [f"--include={','.join(PACKAGES)}", SUITE, str(partial)]
    with log.open("w") as output:
        if subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
            raise CannotMake(f"debootstrap failed, see {log}:\n{tail}")
    for archive in (partial / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()
    partial.rename(base)
    return base


def furnish(run):
    """What a machine has and a tree has not, and the unit that runs the scenarios."""
    # An empty one would make every boot a first boot, which enables all units there are.
    write(run / "etc/machine-id", uuid.uuid4().hex + "\n")
    write(run / "etc/hostname", "system-test\n")
    write(run / "etc/systemd/logind.conf.d/50-system-test.conf", LOGIND)
    write(run / "etc/systemd/journald.conf.d/50-system-test.conf", JOURNALD)
    write(run / "etc/systemd/system.conf.d/50-system-test.conf", MANAGER)
    write(run / "etc/systemd/system/system-test.service", RUNNER)
    wanted = run / "etc/systemd/system/multi-user.target.wants/system-test.service"
    wanted.parent.mkdir(parents=True, exist_ok=True)
    wanted.symlink_to("../system-test.service")
    for unit in MASKED:
        (run / "etc/systemd/system" / unit).symlink_to("/dev/null")
    (run / "opt/system-test").mkdir(parents=True)
    (run / "var/lib/system-test").mkdir(parents=True)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def add_packages(run, package: pathlib.Path):
    """Copies the package and those of the same version beside it."""
    for name in ("thumbcached", "thumbcached-renderer", "thumbcached-exporter", "thumbcached-fleet"):
        beside = package.with_name(package.name.replace("thumbcached_", f"{name}_", 1))
        shutil.copyfile(beside, run / f"var/lib/system-test/{name}.deb")
