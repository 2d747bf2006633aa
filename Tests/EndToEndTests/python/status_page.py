"""Chromium at the status page of thumbcached-exporter.

    status_page.py URL DIRECTORY

Looks at the page in a telephone's width and a wide one, in light and in dark, and leaves a picture of each in
DIRECTORY. Prints what it saw, one fact a line.
"""

import base64
import pathlib
import sys
import tempfile

from chromium import Browser

# Whether something sticks out to the right: tables scroll in themselves.
WIDE = "document.documentElement.scrollWidth > window.innerWidth"
CONTRAST = """(() => {
    const level = color => {
        const [r, g, b] = color.match(/[\\d.]+/g).map(part => part / 255)
            .map(part => part <= .03928 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b;
    };
    const back = element => {
        const color = getComputedStyle(element).backgroundColor;
        return color != 'rgba(0, 0, 0, 0)' ? color : back(element.parentElement);
    };
    return Math.min(...[...document.body.querySelectorAll('*')]
        .filter(element => [...element.childNodes].some(node => node.nodeType == 3 && node.data.trim()))
        .map(element => {
            const [a, b] = [getComputedStyle(element).color, back(element)].map(level).sort((a, b) => b - a);
            return (a + .05) / (b + .05);
        }));
})()"""

url, directory = sys.argv[1], pathlib.Path(sys.argv[2])
with tempfile.TemporaryDirectory() as home:
    browser = Browser(home)
    try:
        browser.ask("Log.enable")
        for width in (360, 1200):
            for scheme in ("light", "dark"):
                browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1,
                            mobile=width < 600)
                browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                browser.open(url)
                styled = browser.run("getComputedStyle(document.querySelector('.cards')).display") == "grid"
                # Four and a half to one is what WCAG 2.2 wants of text.
                contrast = browser.run(CONTRAST)
                print(f"{width} {scheme}:", "styled" if styled else "not styled",
                      "too wide" if browser.run(WIDE) else "fits",
                      "readable" if contrast >= 4.5 else f"contrast {contrast:.2f}")
                image = browser.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
                (directory / f"status-page-{width}-{scheme}.png").write_bytes(base64.b64decode(image["data"]))
        print("says:", browser.run("document.querySelector('.pill').textContent"))
        print("plots:", browser.run("[...document.querySelectorAll('.plot .line')]"
                                    ".filter(line => line.getAttribute('d').includes('L')).length"))
        print("asked for:", *sorted(set(browser.run(
            "performance.getEntriesByType('resource').map(entry => new URL(entry.name).pathname)")) or {"nothing else"}))
        print("reported:", *[message for message in browser.said if "favicon" not in message] or ["nothing"])
    finally:
        browser.process.kill()
        browser.process.wait()
