"""The users of the machine and their sessions, opened through PAM as display managers, su, ssh and login do."""

import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys

from commands import attempt, property_of, run, systemctl
from waiting import Failed, check, wait_until

REPORTS = pathlib.Path("/run/system-test")
APPLICATION = ["/usr/bin/python3", "-B", "/opt/system-test/application.py"]
NAMES = {"alice": 2001, "bob": 2002, "carol": 2003}


class Person:
    def __init__(self, name, uid):
        self.name = name
        self.uid = uid

    def manager_runs(self):
        return property_of(f"user@{self.uid}.service", "ActiveState") not in ("inactive", "failed")

    @property
    def slice(self):
        return f"user-{self.uid}.slice"

    def stop_slice(self):
        """Stops the user's slice, because systemd may omit this after logind has closed the last session."""
        wait_until(
            f"{self.name} has neither session nor manager",
            lambda: not self.has_sessions() and not self.manager_runs(),
        )
        systemctl("stop", self.slice)

    def is_inactive(self):
        """Whether the user's slice and manager have stopped. No session can be opened while the slice is stopping."""
        return property_of(self.slice, "ActiveState") == "inactive" and not self.manager_runs()

    def has_sessions(self):
        return attempt("loginctl", "show-user", "--property=Sessions", "--value", self.name).stdout.strip() != ""


class People:
    """Creates the users, opens their sessions, and ends all sessions after a scenario."""

    def __init__(self):
        self.alice, self.bob, self.carol = (Person(name, uid) for name, uid in NAMES.items())
        self.all = [self.alice, self.bob, self.carol]
        self.applications = []
        self.count = 0

    def make(self):
        for person in self.all:
            if attempt("id", person.name).returncode != 0:
                run(
                    "useradd",
                    "--create-home",
                    "--user-group",
                    "--shell",
                    "/bin/sh",
                    "--uid",
                    str(person.uid),
                    person.name,
                )
        self.clear_reports()

    def clear_reports(self):
        """Makes an empty report directory that all users may write to."""
        if REPORTS.exists():
            shutil.rmtree(REPORTS)
        REPORTS.mkdir()
        REPORTS.chmod(0o1777)

    def login(self, person, account="mail", kind="service", **options):
        """Opens a session with an application and waits until the application has logged in and stored its images."""
        application = self.start(person, account, kind, **options)
        application.wait_until_ready()
        return application

    def start(self, person, account="mail", kind="service", **options):
        """Opens a session with an application without waiting for the application."""
        self.count += 1
        name = f"person-{person.name}-{self.count}"
        report = REPORTS / f"{name}.json"
        words = [*APPLICATION, f"{account}@{person.name}.example", str(report)]
        for name_of_option, value in options.items():
            option = f"--{name_of_option.replace('_', '-')}"
            words += [option] if value is True else [option, str(value)]
        application = Application(person, name, report, KINDS[kind](person, name, words))
        self.applications.append(application)
        return application

    def end_all(self):
        """Ends all sessions and user managers and waits until they have ended."""
        for application in self.applications:
            application.session.end(application)
        self.applications = []
        for person in self.all:
            attempt("loginctl", "disable-linger", person.name)
            if person.manager_runs():
                attempt("loginctl", "terminate-user", person.name)
        for person in self.all:
            person.stop_slice()
            wait_until(f"the user manager of {person.name} has ended", person.is_inactive)
        self.clear_reports()


class Application:
    """A running application.py and its report."""

    def __init__(self, person, name, report, session):
        self.person = person
        self.name = name
        self.report_file = report
        self.session = session

    @property
    def seen(self):
        try:
            return json.loads(self.report_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def wait_until_ready(self):
        def is_ready():
            seen = self.seen
            if seen is None:
                self.session.check_running()
            return seen is not None and seen["ready"]

        wait_until(f"{self.name} has logged in and stored its images", is_ready)
        self.check_no_failures()

    def has_session(self):
        """Whether PAM and logind opened a session for the application, judged by its control group."""
        seen = wait_until(f"{self.name} runs", lambda: self.seen)
        try:
            return "/session-" in pathlib.Path(f"/proc/{seen['pid']}/cgroup").read_text()
        except FileNotFoundError:
            return False

    def wait_for_hits(self, more=40):
        """Waits until the application has received that many more images."""
        goal = self.seen["hits"] + more
        wait_until(f"{self.name} has received {more} more images", lambda: self.seen["hits"] >= goal)

    def check_no_failures(self, closed=0):
        """Checks that every GET returned the stored image and at most `closed` connections were closed; None: any."""
        seen = self.seen
        well = not seen["misses"] and not seen["wrong"] and not seen["errors"] and not seen["refused"]
        check(well and (closed is None or seen["closed"] <= closed), f"{self.name} had failed requests: {seen}")

    def stop(self):
        """Sends SIGTERM and waits until the application has written its last report."""
        self.signal(signal.SIGTERM)
        wait_until(f"{self.name} has stopped", lambda: self.seen["ended"] or not self.is_alive())

    def is_alive(self):
        return pathlib.Path(f"/proc/{self.seen['pid']}").exists()

    def signal(self, number):
        seen = self.seen
        if seen is not None:
            try:
                os.kill(seen["pid"], number)
            except ProcessLookupError:
                pass

    def log_out(self):
        """Starts to end the session in the way of its kind; does not wait for the logout."""
        self.session.end(self)


class ServiceSession:
    """A session that systemd opens for a service with PAMName=, as display managers do."""

    def __init__(self, person, name, words):
        self.unit = f"{name}.service"
        run(
            "systemd-run",
            "--quiet",
            "--collect",
            f"--unit={name}",
            "--property=PAMName=login",
            f"--property=User={person.name}",
            *words,
        )

    def check_running(self):
        check(property_of(self.unit, "ActiveState") in ("active", "activating"), f"{self.unit} is not active")

    def end(self, _):
        attempt("systemctl", "stop", self.unit)


class ProcessSession:
    """A session that ends with its only program."""

    def __init__(self, person, name, words):
        self.name = name
        command = self.command(person, words)
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=sys.stderr, start_new_session=True
        )

    def check_running(self):
        check(self.process.poll() is None, f"the session of {self.name} ended: status {self.process.returncode}")

    def end(self, application):
        if self.process.poll() is None:
            application.signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired as error:
                self.process.kill()
                self.process.wait()
                raise Failed(f"the session of {self.name} did not end with its program") from error


class SwitchUserSession(ProcessSession):
    """A session of su -l."""

    def command(self, person, words):
        return ["su", "-l", person.name, "-c", "exec " + " ".join(words)]


class SecureShellSession(ProcessSession):
    """A session of ssh over loopback, with a key."""

    KEY = pathlib.Path("/root/.ssh/id_ed25519")

    def command(self, person, words):
        self.admit(person)
        systemctl("start", "ssh.service")
        options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
        return ["ssh", *options, f"{person.name}@127.0.0.1", "exec " + " ".join(words)]

    def admit(self, person):
        if not self.KEY.exists():
            self.KEY.parent.mkdir(mode=0o700, exist_ok=True)
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.KEY))
        folder = pathlib.Path(f"/home/{person.name}/.ssh")
        folder.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(self.KEY.with_suffix(".pub"), folder / "authorized_keys")
        # sshd rejects accounts with a locked password; "*" matches no password but is not locked.
        run("usermod", "--password", "*", person.name)
        run("chown", "--recursive", f"{person.name}:", str(folder))


class ConsoleSession:
    """A session of login(1) on a pseudoterminal."""

    def __init__(self, person, name, words):
        self.name = name
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execv("/bin/login", ["login", "-f", person.name])
        os.write(self.terminal, ("exec " + " ".join(words) + "\n").encode())

    def check_running(self):
        if self.pid is not None:
            ended, _ = os.waitpid(self.pid, os.WNOHANG)
            check(ended == 0, f"login of {self.name} ended")

    def end(self, application):
        if self.pid is None:
            return
        application.signal(signal.SIGTERM)
        os.close(self.terminal)
        wait_until(f"login of {self.name} has ended", lambda: os.waitpid(self.pid, os.WNOHANG)[0] != 0)
        self.pid = None


KINDS = {"service": ServiceSession, "su": SwitchUserSession, "ssh": SecureShellSession, "login": ConsoleSession}
