"""Controls a headless Chromium with the DevTools protocol through a pipe."""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys

PROGRAMS = ("chromium-headless-shell", "chromium")


class Browser:
    def __init__(self, home):
        to_browser, self.requests = os.pipe()
        self.replies, from_browser = os.pipe()

        def move_descriptors():
            # Chromium reads from 3 and writes to 4. Moved to high numbers first, so that dup2 overwrites none of them.
            ends = [os.dup2(end, 100 + number) for number, end in enumerate((to_browser, from_browser))]
            for number, end in enumerate(ends):
                os.dup2(end, 3 + number)

        options = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={home}", "--no-proxy-server",
                   "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=960,560"]
        # Chromium's sandbox does not work for root. The pages are trusted.
        options += ["--no-sandbox"] if os.geteuid() == 0 else []
        program = next(path for name in PROGRAMS if (path := shutil.which(name)))
        self.process = subprocess.Popen(
            [program, *options, "about:blank"], close_fds=False, preexec_fn=move_descriptors, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.session = b"", 0, None
        # Messages of the console, such as errors and blocked styles.
        self.messages = []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        self.call("Page.enable")

    def receive(self):
        while b"\0" not in self.buffer:
            more = os.read(self.replies, 1 << 20)
            if not more:
                sys.exit("the browser has ended")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, waiting_for=None, **parameters):
        """Calls a method, and returns its result after the event `waiting_for` was received."""
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
                self.messages.append(reply["params"]["entry"]["text"])
        return result

    def screenshot(self, path, **options):
        data = self.call("Page.captureScreenshot", format="png", **options)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def open(self, url):
        self.call("Page.navigate", waiting_for="Page.loadEventFired", url=url)

    def run(self, script, **options):
        """Evaluates a script in the page, and waits for the result of a promise."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, **options)
        if "exceptionDetails" in result:
            sys.exit(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def press(self, button):
        """Clicks the element of a selector, and waits until the next page is loaded."""
        x, y = self.run(f"(r => [r.x + r.width / 2, r.y + r.height / 2])"
                        f"(document.querySelector('{button}').getBoundingClientRect())")
        where = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", **where)
        self.call("Input.dispatchMouseEvent", waiting_for="Page.loadEventFired", type="mouseReleased", **where)
