"""A program as users run them: logs its account in, puts pictures, and gets them again and again, until it is told to
stop.

    application.py ACCOUNT REPORT [--pictures N] [--each] [--get-only] [--session ID] [--resume]

It checks every byte it gets. REPORT is a file that always holds, as JSON, what it has seen so far. With --each every
request has a connection of its own. With --get-only it puts its pictures once, and none again. With --resume it neither
logs in nor puts: somebody did. SIGTERM and SIGHUP end it.
"""

import argparse
import json
import os
import signal
import time

from pictures import picture
from resp import Client, Closed, Refused

# So that some of these leave a processor for what they test.
PAUSE = 0.002
REPORT_EVERY = 0.05


class Stopped(BaseException):
    """A signal came: nothing on the way may take this for a failure of its own."""


class Application:
    def __init__(self, arguments):
        self.account = arguments.account
        self.session = arguments.session
        self.each = arguments.each
        self.get_only = arguments.get_only
        self.report_file = arguments.report
        self.pictures = {
            f"contact-{number}": picture(f"{arguments.account} {number}", size=2000)
            for number in range(arguments.pictures)
        }
        self.client = None
        self.stopped = False
        self.reported = 0.0
        self.seen = {
            "pid": os.getpid(),
            "ready": False,
            "ended": False,
            "hits": 0,
            "misses": 0,
            "wrong": 0,
            "errors": {},
            "closed": 0,
            "resets": 0,
            "stopping": 0,
            "refused": 0,
            "slowest": 0.0,
        }

    def run(self, resume):
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGHUP, self.stop)
        self.report(force=True)
        try:
            if not resume:
                self.begin()
            self.seen["ready"] = True
            self.report(force=True)
            while True:
                self.look_at_all()
        except Stopped:
            self.seen["ended"] = True
            self.report(force=True)

    def stop(self, *_):
        # Also out of a call that nobody answers.
        if not self.stopped:
            self.stopped = True
            raise Stopped

    def begin(self):
        self.request("LOGIN", self.account, "SESSION", self.session)
        for profile, image in self.pictures.items():
            self.request("PUT", self.account, profile, image)

    def look_at_all(self):
        for number, (profile, image) in enumerate(self.pictures.items()):
            answer = self.request("GET", self.account, profile)
            if answer == image:
                self.seen["hits"] += 1
            elif answer is None:
                self.seen["misses"] += 1
            elif answer is not FAILED:
                self.seen["wrong"] += 1
            # One put for some gets, as when contacts change.
            if number % 8 == 7 and not self.get_only:
                self.request("PUT", self.account, profile, image)
            self.report()
            time.sleep(PAUSE)

    def request(self, *words):
        """The reply. A failure is counted; a connection that was closed is made anew, as every client library does, and
        so is
        one to a daemon that says it stops: what it says that of it has not begun."""
        began = time.monotonic()
        try:
            while True:
                try:
                    if self.client is None:
                        self.client = Client()
                    return self.client.command(*words)
                except Refused as error:
                    if error.code != "SHUTTINGDOWN":
                        raise
                    self.seen["stopping"] += 1
                    self.disconnect()
                except Closed as error:
                    self.seen["closed"] += 1
                    self.seen["resets"] += error.is_reset
                    self.disconnect()
                    if "middle" in str(error):
                        self.count_error("HALF")
                        return FAILED
        except Refused as error:
            self.count_error(error.code)
            return FAILED
        except OSError as error:
            self.seen["refused"] += 1
            self.count_error(type(error).__name__)
            self.disconnect()
            return FAILED
        finally:
            self.seen["slowest"] = max(self.seen["slowest"], time.monotonic() - began)
            if self.each:
                self.disconnect()

    def disconnect(self):
        if self.client is not None:
            self.client.close()
            self.client = None

    def count_error(self, code):
        self.seen["errors"][code] = self.seen["errors"].get(code, 0) + 1

    def report(self, force=False):
        now = time.monotonic()
        if not force and now - self.reported < REPORT_EVERY:
            return
        self.reported = now
        partial = f"{self.report_file}.{os.getpid()}"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(self.seen, file)
        os.rename(partial, self.report_file)


# Instead of a reply, where there was none or an error.
FAILED = object()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("account")
    parser.add_argument("report")
    parser.add_argument("--pictures", type=int, default=8)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--get-only", action="store_true")
    parser.add_argument("--session", default="default")
    parser.add_argument("--resume", action="store_true")
    arguments = parser.parse_args()
    Application(arguments).run(arguments.resume)


if __name__ == "__main__":
    main()
