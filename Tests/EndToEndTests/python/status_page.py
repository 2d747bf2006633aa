"""Checks the status page of thumbcached-http with Chromium.

    status_page.py URL DIRECTORY

Loads the page with three widths and two color schemes, and saves a screenshot of each combination to DIRECTORY. Prints
the results.
"""

import pathlib
import sys
import tempfile

from chromium import Browser

# Whether the page is wider than the window. On a telephone, tables scroll inside the page.
WIDE = """document.documentElement.scrollWidth > window.innerWidth || window.innerWidth >= 500
    && [...document.querySelectorAll('.scroll')].some(table => table.scrollWidth > table.clientWidth)"""
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
        browser.call("Log.enable")
        for width in (360, 500, 1200):
            for scheme in ("light", "dark"):
                browser.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1,
                            mobile=width < 600)
                browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                browser.open(url)
                styled = browser.run("getComputedStyle(document.querySelector('.cards')).display") == "grid"
                # WCAG 2.2 requires a contrast of 4.5 for text.
                contrast = browser.run(CONTRAST)
                print(f"{width} {scheme}:", "styled" if styled else "not styled",
                      "too wide" if browser.run(WIDE) else "fits",
                      "readable" if contrast >= 4.5 else f"contrast {contrast:.2f}")
                browser.screenshot(directory / f"status-page-{width}-{scheme}.png", captureBeyondViewport=True)
        print("state:", browser.run("document.querySelector('.pill').textContent"))
        print("plots:", browser.run("[...document.querySelectorAll('.plot .line')]"
                                    ".filter(line => line.getAttribute('d').includes('L')).length"))
        resources = browser.run(
            "performance.getEntriesByType('resource').map(entry => new URL(entry.name).pathname)")
        print("resources:", *sorted(set(resources)) or ["none"])
        print("console:", *[message for message in browser.messages if "favicon" not in message] or ["none"])
    finally:
        browser.process.kill()
        browser.process.wait()
