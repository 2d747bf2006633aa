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
    adduser libc-ares2 libcurl4 libssl3 libvips42 ca-certificates
    python3 redis-tools openssh-server openssh-client
""".split()
# Units that would start on their own while scenarios run.
MASKED = """
    console-getty.service getty.target apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer
    e2scrub_all.timer fstrim.timer systemd-tmpfiles-clean.timer man-db.timer
""".split()
# Logouts take effect at once; the scenario with logind's default delay of ten seconds removes this file.
LOGIND = "[Login]\nUserStopDelaySec=0\n"
JOURNALD = "[Journal]\nStorage=persistent\nRateLimitIntervalSec=0\nForwardToConsole=no\n"
# The scenarios log in more often than the default of five times in ten seconds.
MANAGER = "[Manager]\nDefaultStartLimitBurst=1000\n"
RUNNER = """[Unit]
Description=Scenarios
After=dbus.service systemd-logind.service systemd-user-sessions.service

[Service]
# So that the boot completes while the scenarios run.
Type=exec
ExecStart=/usr/bin/python3 -B /opt/system-test/run.py
# Also after a crash, because the host waits for the power-off.
ExecStopPost=/bin/systemctl --no-block poweroff
"""


class CannotMake(Exception):
    """The tree could not be made; the message says why."""


def fresh(folder):
    """Copies the base tree to folder/run, ready to boot, and returns its path.

    Raises CannotMake. Takes seconds, or minutes if there is no base tree yet.
    """
    base = base_tree(folder)
    run = folder / "run"
    if run.exists():
        shutil.rmtree(run)
    subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(run)], check=True)
    prepare(run)
    return run


def base_tree(folder):
    key = hashlib.sha256(" ".join([SUITE, *PACKAGES]).encode()).hexdigest()[:12]
    base = folder / f"base-{key}"
    if base.is_dir():
        return base
    for old in folder.glob("base-*"):
        shutil.rmtree(old)
    print(f"Making a Debian tree in {base}; this takes some minutes and is needed only once", flush=True)
    partial = folder / "base-partial"
    log = folder / "debootstrap.log"
    # In its own mount namespace, so that no mount of debootstrap remains.
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


def prepare(run):
    """Adds the configuration of the test machine and the unit that runs the scenarios."""
    # With an empty machine-id, systemd would treat every boot as the first one and enable all units.
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
    """Copies the given package and the other packages of the same version in its directory."""
    for name in ("thumbcached", "thumbcached-renderer", "thumbcached-http", "thumbcached-fleet"):
        beside = package.with_name(package.name.replace("thumbcached_", f"{name}_", 1))
        shutil.copyfile(beside, run / f"var/lib/system-test/{name}.deb")
