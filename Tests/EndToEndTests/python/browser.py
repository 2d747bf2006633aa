"""Uses the web service of examples/web with Chromium.

    browser.py URL USER SCREENSHOT

Signs USER in, loads the page twice, logs out with the button, and requests the images again, from the service and from
the browser's cache. Prints the results, and saves a screenshot of the page to SCREENSHOT.
"""

import json
import sys
import tempfile

from chromium import Browser

SHOWN = "[...document.images].filter(image => image.complete && image.naturalWidth == 160).length"
# The initials that no image covers.
INITIALS = """[...document.querySelectorAll('.avatar')].filter(avatar => {
    const {x, y} = avatar.getBoundingClientRect();
    return document.elementFromPoint(x + 48, y + 48) == avatar;
}).map(avatar => avatar.textContent).join()"""
# The number of images that were requested, and of those with status 304, for which the browser counts 300 bytes.
LOADED = """(entries => `${entries.length}, ${entries.filter(entry => entry.transferSize == 300
        && entry.responseStatus < 400).length} not modified`)
    (performance.getEntriesByType('resource').filter(entry => entry.initiatorType == 'img'))"""
FETCH = "Promise.all(%s.map(path => fetch(path, {cache: '%s'}).then(reply => reply.status)))"

url, user, screenshot = sys.argv[1:]
with tempfile.TemporaryDirectory() as home:
    browser = Browser(home)
    try:
        browser.open(url)
        browser.run(f"document.querySelector('input').value = {json.dumps(user)}")
        browser.press("button")
        print("images shown:", browser.run(SHOWN), "of", browser.run(LOADED))
        print("initials:", browser.run(INITIALS))
        paths = json.dumps(browser.run("[...document.images].map(image => image.getAttribute('src'))"))
        browser.screenshot(screenshot)
        browser.open(url)
        print("images shown again:", browser.run(SHOWN), "of", browser.run(LOADED))

        browser.press("header button")
        print("after the logout:", browser.run("document.querySelector('button').textContent"))
        print("status of an image:", *set(browser.run(FETCH % (paths, "no-store"))))
        # This mode also returns stale copies from the browser's cache.
        kept = browser.run(FETCH % (paths, "force-cache")).count(200)
        print("cached copies:", kept or "none")
    finally:
        browser.process.kill()
        browser.process.wait()
