"""A small RESP client for setup: filling stores, purging, reading INFO."""

from concurrent.futures.thread import ThreadPoolExecutor

from world import processes


def frame(*words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


class Client:
    def __init__(self, address):
        self.stream = processes.connect(address)
        self.reader = self.stream.makefile("rb", 1 << 16)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.reader.close()
        self.stream.close()

    def send(self, *words):
        self.stream.sendall(frame(*words))

    def reply(self):
        line = self.reader.readline()
        if not line.endswith(b"\r\n"):
            raise processes.Failed("the server closed the connection in the middle of a reply")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            length = int(rest)
            return None if length < 0 else self.reader.read(length + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        raise processes.Failed(f"unexpected reply: {line!r}")

    def __call__(self, *words):
        self.send(*words)
        return self.reply()

    def info(self, section):
        """Returns a section of INFO as a dictionary."""
        lines = self("INFO", section).decode().split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line)


def fill(address, commands, window=64):
    """Sends commands whose replies are one line, with up to `window` of them pending."""
    with Client(address) as client:
        pending = 0
        batch = []
        for words in commands:
            batch.append(frame(*words))
            if len(batch) == window:
                pending += _exchange(client, batch, pending, window)
                batch = []
        _exchange(client, batch, pending, 0)


def _exchange(client, batch, pending, keep):
    """Sends a batch and reads replies until at most `keep` are pending. Returns the change of the pending number."""
    if batch:
        client.stream.sendall(b"".join(batch))
    missing = pending + len(batch)
    while missing > keep:
        line = client.reader.readline()
        if not line.startswith((b"+", b":")):
            raise processes.Failed(f"unexpected reply while filling a store: {line!r}")
        missing -= 1
    return missing - pending


def fill_in_parallel(address, parts):
    """Fills over one connection per part, because PUTs of one connection are processed one after another."""
    with ThreadPoolExecutor(len(parts)) as pool:
        for done in [pool.submit(fill, address, part) for part in parts]:
            done.result()
