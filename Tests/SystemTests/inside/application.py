"""A client program of a user: logs an account in, stores images, and reads them repeatedly until a signal ends it.

    application.py ACCOUNT REPORT [--images N] [--each] [--get-only] [--new-images] [--session ID] [--resume]

Compares every image with what it stored. REPORT is a JSON file with the counters, rewritten regularly. --each opens a
connection for each request. --get-only stores the images once, at the start. --new-images replaces an image by a new
one at each PUT. --resume neither logs in nor stores: the account is logged in and has images. SIGTERM and SIGHUP end
the program.
"""

import argparse
import json
import os
import signal
import time

from images import make_image
from resp import Client, Closed, ErrorReply

# Seconds between requests, so that several applications leave CPU time for the daemon.
PAUSE = 0.002
REPORT_EVERY = 0.05


class Stopped(BaseException):
    """A signal was received. Derives from BaseException so that no handler counts it as a failed request."""


class Application:
    def __init__(self, arguments):
        self.account = arguments.account
        self.session = arguments.session
        self.each = arguments.each
        self.get_only = arguments.get_only
        self.new_images = arguments.new_images
        self.report_file = arguments.report
        self.images = {
            f"contact-{number}": make_image(f"{arguments.account} {number}", size=2000)
            for number in range(arguments.images)
        }
        self.puts = 0
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
                self.get_all()
        except Stopped:
            self.seen["ended"] = True
            self.report(force=True)

    def stop(self, *_):
        # Raises, to interrupt a blocking read as well.
        if not self.stopped:
            self.stopped = True
            raise Stopped

    def begin(self):
        self.request("LOGIN", self.account, "SESSION", self.session)
        for profile, image in self.images.items():
            self.request("PUT", self.account, profile, image)

    def get_all(self):
        for number, (profile, image) in enumerate(list(self.images.items())):
            answer = self.request("GET", self.account, profile)
            if answer == image:
                self.seen["hits"] += 1
            elif answer is None:
                self.seen["misses"] += 1
            elif answer is not FAILED:
                self.seen["wrong"] += 1
            # One PUT for every eight GETs.
            if number % 8 == 7 and not self.get_only:
                self.put(profile, image)
            self.report()
            time.sleep(PAUSE)

    def put(self, profile, image):
        if self.new_images:
            self.puts += 1
            image = make_image(f"{self.account} {profile} {self.puts}", size=2000)
        if self.request("PUT", self.account, profile, image) is not FAILED:
            # From here on, a GET must return this image.
            self.images[profile] = image

    def request(self, *words):
        """Returns the reply, or FAILED after counting the error.

        Reconnects and repeats the request if the connection was closed, or if the daemon replied SHUTTINGDOWN: in that
        case it has not started the request.
        """
        began = time.monotonic()
        try:
            while True:
                try:
                    if self.client is None:
                        self.client = Client()
                    return self.client.command(*words)
                except ErrorReply as error:
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
        except ErrorReply as error:
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


# Result of a request that failed.
FAILED = object()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("account")
    parser.add_argument("report")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--get-only", action="store_true")
    parser.add_argument("--new-images", action="store_true")
    parser.add_argument("--session", default="default")
    parser.add_argument("--resume", action="store_true")
    arguments = parser.parse_args()
    Application(arguments).run(arguments.resume)


if __name__ == "__main__":
    main()
