"""Chromium at the web service of examples/web.

    browser.py URL USER SCREENSHOT

Signs USER in at the web service of examples/web, looks at the pictures, looks again, logs out by the button, and asks
for everything once more: from the service, and from what the browser itself might have kept.
Prints what it saw, one fact a line. SCREENSHOT gets a picture of the page.
"""

import base64
import json
import pathlib
import sys
import tempfile

from chromium import Browser

SHOWN = "[...document.images].filter(image => image.complete && image.naturalWidth == 160).length"
# How many came, and how many of those as nothing but a head, for which the browser counts 300 bytes: unchanged.
CAME = """(entries => `${entries.length}, ${entries.filter(entry => entry.transferSize == 300).length} of them unchanged`)
    (performance.getEntriesByType('resource').filter(entry => entry.initiatorType == 'img'))"""
ASK = "Promise.all(%s.map(path => fetch(path, {cache: '%s'}).then(reply => reply.status)))"

url, user, screenshot = sys.argv[1:]
with tempfile.TemporaryDirectory() as home:
    browser = Browser(home)
    try:
        browser.open(url)
        browser.run(f"document.querySelector('input').value = {json.dumps(user)}")
        browser.press("button")
        print("pictures shown:", browser.run(SHOWN), "of", browser.run(CAME))
        paths = json.dumps(browser.run("[...document.images].map(image => image.getAttribute('src'))"))
        image = browser.ask("Page.captureScreenshot", format="png")
        pathlib.Path(screenshot).write_bytes(base64.b64decode(image["data"]))
        browser.open(url)
        print("pictures shown again:", browser.run(SHOWN), "of", browser.run(CAME))

        browser.press("header button")
        print("behind the log-out:", browser.run("document.querySelector('button').textContent"))
        print("the service answers", *set(browser.run(ASK % (paths, "no-store"))))
        # This cache policy takes whatever the browser still has, however old.
        kept = browser.run(ASK % (paths, "force-cache")).count(200)
        print("the browser's own copies:", kept or "none")
    finally:
        browser.process.kill()
        browser.process.wait()
