"""Simulates users on the hosts and administrators who log them out."""

import itertools
import random
import subprocess
import threading

from harness import ErrorReply, make_image, text_of

USERS = ["alice", "bob", "carol", "dan", "eve"]
PROFILES = ["friend-1", "friend-2"]
WAIT, LIVE = 2, 2  # --wait and --live, in seconds
numbers = itertools.count(1)


class People:
    """Threads that act at random until stop()."""

    def __init__(self, hosts, programs, history, seed):
        self.hosts, self.programs, self.history = hosts, programs, history
        self.enough = threading.Event()
        self.failure = None
        roles = [self.use_host] * 3 + [self.administer] * 2
        self.threads = [
            threading.Thread(target=self.run, args=(role, random.Random(f"{seed}-{number}")))
            for number, role in enumerate(roles)
        ]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.enough.set()
        for thread in self.threads:
            thread.join()
        if self.failure:
            raise self.failure

    def run(self, act, chance):
        try:
            while not self.enough.is_set():
                act(chance)
                self.enough.wait(chance.uniform(0, 0.1))
        except Exception as failure:  # noqa: BLE001 — stop() raises it
            self.failure = failure

    def use_host(self, chance):
        host, user = chance.choice(self.hosts), chance.choice(USERS)
        if chance.random() < 0.3:
            read_user(self.history, host, user, settled=False)
            return
        self.call(host, "login", ("LOGIN", user), user=user)
        profile = chance.choice(PROFILES)
        text = f"{host.name} {user} {profile} {next(numbers)}"
        self.call(host, "put", ("PUT", user, profile, make_image(text)), user=user, profile=profile, text=text)

    def call(self, host, op, words, **more):
        start = self.history.now()
        try:
            client = host.connect()
        except OSError:
            return  # no request was sent
        try:
            with client:
                reply = client.call(*words)
            outcome = "refused" if isinstance(reply, ErrorReply) else "ok"
        except (OSError, EOFError):
            outcome = "unknown"
        self.history.add(op, start, self.history.now(), host=host.name, outcome=outcome, **more)

    def administer(self, chance):
        host = chance.choice(self.hosts)
        user = None if chance.random() < 0.04 else chance.choice(USERS)
        if chance.random() < 0.7:
            op, words, more = "logout", [user or "--all"], {}
        else:
            profiles = [] if user is None or chance.random() < 0.5 else [chance.choice(PROFILES)]
            op, words, more = "purge", [user or "--all", *profiles], {"profiles": profiles or None}
        live_only = chance.random() < 0.5
        options = ["--wait", str(WAIT), "--live", str(LIVE), "--config", host.configuration]
        options += ["--live-only"] if live_only else []
        argv = [*host.machine.wrapper, self.programs / "thumbcachectl", "fleet", op, *words, *options]
        start = self.history.now()
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        rows = [line.split() for line in done.stdout.splitlines()[2:]]
        self.history.add(
            op, start, self.history.now(), user=user, status=done.returncode, hosts={row[0]: row[1] for row in rows},
            at=host.name, said=done.stderr.strip()[:200], live_only=live_only, **more,
        )  # fmt: skip
        self.enough.wait(chance.uniform(0, 0.5))


def read_user(history, host, user, settled):
    """Records GETs of a user; returns None if the host does not answer."""
    start = history.now()
    answer = {}
    try:
        with host.connect() as client:
            for profile in PROFILES:
                reply = client.call("GET", user, profile, "CACHED")
                if isinstance(reply, ErrorReply):
                    if reply.code != "NOLOGIN":
                        return None
                    answer = "NOLOGIN"
                    break
                answer[profile] = None if reply is None else text_of(reply) or "something else"
    except (OSError, EOFError):
        return None
    return history.add("read", start, history.now(), host=host.name, user=user, answer=answer, settled=settled)


def read_disk(history, host):
    start = history.now()
    with host.connect() as client:
        users = [user.decode() for user in client.call("USERS")]
    keys = host.keys()
    return history.add("disk", start, history.now(), host=host.name, users=users, keys=keys, settled=True)
