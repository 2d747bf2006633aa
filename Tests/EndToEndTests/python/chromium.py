"""A browser without a window, led by the protocol of its own debugger: Chromium, through a pipe."""

import json
import os
import shutil
import subprocess
import sys

PROGRAMS = ("chromium-headless-shell", "chromium")


class Browser:
    def __init__(self, home):
        to_browser, self.requests = os.pipe()
        self.replies, from_browser = os.pipe()

        def take_descriptors():
            # The numbers that Chromium reads from and writes to. First out of the way, for they may be taken.
            ends = [os.dup2(end, 100 + number) for number, end in enumerate((to_browser, from_browser))]
            for number, end in enumerate(ends):
                os.dup2(end, 3 + number)

        options = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={home}", "--no-proxy-server",
                   "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=960,560"]
        # Chromium's sandbox does not take root in. What is shown here is our own.
        options += ["--no-sandbox"] if os.geteuid() == 0 else []
        program = next(path for name in PROGRAMS if (path := shutil.which(name)))
        self.process = subprocess.Popen(
            [program, *options, "about:blank"], close_fds=False, preexec_fn=take_descriptors, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.session = b"", 0, None
        # What the console has: refused styles, errors.
        self.said = []
        target = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        self.ask("Page.enable")

    def receive(self):
        while b"\0" not in self.buffer:
            more = os.read(self.replies, 1 << 20)
            if not more:
                sys.exit("the browser has ended")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method, waiting_for=None, **parameters):
        """The result, once the event has come, too, that is waited for."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.requests, json.dumps(message).encode() + b"\0")
        result = None
        while result is None or waiting_for:
            reply = self.receive()
            if reply.get("id") == self.number:
                if "error" in reply:
                    sys.exit(f"{method}: {reply['error']}")
                result = reply["result"]
            elif reply.get("method") == waiting_for:
                waiting_for = None
            elif reply.get("method") == "Log.entryAdded":
                self.said.append(reply["params"]["entry"]["text"])
        return result

    def open(self, url):
        self.ask("Page.navigate", waiting_for="Page.loadEventFired", url=url)

    def run(self, script, **options):
        """What the page makes of a script. A promise is waited for."""
        result = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, **options)
        if "exceptionDetails" in result:
            sys.exit(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def press(self, button):
        """Clicks with the mouse on what a selector names, and waits for the next page."""
        x, y = self.run(f"(r => [r.x + r.width / 2, r.y + r.height / 2])"
                        f"(document.querySelector('{button}').getBoundingClientRect())")
        where = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self.ask("Input.dispatchMouseEvent", type="mousePressed", **where)
        self.ask("Input.dispatchMouseEvent", waiting_for="Page.loadEventFired", type="mouseReleased", **where)
