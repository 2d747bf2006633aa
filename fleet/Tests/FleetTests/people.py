"""Who uses the fleet meanwhile: people on its hosts, and administrators who log them out."""

import itertools
import random
import subprocess
import threading

from beside import Refusal, picture, text_of

USERS = ["alice", "bob", "carol", "dan", "eve"]
PROFILES = ["friend-1", "friend-2"]
WAIT, LIVE = 2, 2  # seconds that a log-out waits, and after which a host is away
numbers = itertools.count(1)


class People:
    """Threads that do as they like until they are told to stop."""

    def __init__(self, hosts, programs, history, seed):
        self.hosts, self.programs, self.history = hosts, programs, history
        self.enough = threading.Event()
        self.failure = None
        lives = [self.use_a_host] * 3 + [self.administer] * 2
        self.threads = [
            threading.Thread(target=self.live, args=(life, random.Random(f"{seed}-{number}")))
            for number, life in enumerate(lives)
        ]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.enough.set()
        for thread in self.threads:
            thread.join()
        if self.failure:
            raise self.failure

    def live(self, act, chance):
        try:
            while not self.enough.is_set():
                act(chance)
                self.enough.wait(chance.uniform(0, 0.1))
        except Exception as failure:  # noqa: BLE001  handed to who stops it
            self.failure = failure

    def use_a_host(self, chance):
        host, user = chance.choice(self.hosts), chance.choice(USERS)
        if chance.random() < 0.3:
            look(self.history, host, user, settled=False)
            return
        self.tell(host, "login", ("LOGIN", user), user=user)
        profile = chance.choice(PROFILES)
        text = f"{host.name} {user} {profile} {next(numbers)}"
        self.tell(host, "put", ("PUT", user, profile, picture(text)), user=user, profile=profile, text=text)

    def tell(self, host, op, words, **more):
        start = self.history.now()
        try:
            client = host.connect()
        except OSError:
            return  # it was not asked
        try:
            with client:
                reply = client.call(*words)
            outcome = "refused" if isinstance(reply, Refusal) else "ok"
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


def look(history, host, user, settled):
    """GETs of a user's; None where the host does not answer."""
    start = history.now()
    answer = {}
    try:
        with host.connect() as client:
            for profile in PROFILES:
                reply = client.call("GET", user, profile, "CACHED")
                if isinstance(reply, Refusal):
                    if reply.code != "NOLOGIN":
                        return None
                    answer = "NOLOGIN"
                    break
                answer[profile] = None if reply is None else text_of(reply) or "something else"
    except (OSError, EOFError):
        return None
    return history.add("look", start, history.now(), host=host.name, user=user, answer=answer, settled=settled)


def look_at_disk(history, host):
    start = history.now()
    with host.connect() as client:
        users = [user.decode() for user in client.call("USERS")]
    keys = host.keys()
    return history.add("disk", start, history.now(), host=host.name, users=users, keys=keys, settled=True)
