"""B1: what a release build from nothing costs, against the least program on each of the two largest dependencies."""

import os
import resource
import shutil

from figures import Figure, Row
from world import processes

#: What the package manager keeps of the dependencies. With it nothing is downloaded.
FETCHED = ("Package.resolved", ".build/checkouts", ".build/repositories", ".build/workspace-state.json")

HELLO = {
    "swift-nio": (
        "NIOPosix",
        'import NIOPosix\nprint("hello", MultiThreadedEventLoopGroup.singleton.next())\n',
    ),
    "swift-argument-parser": (
        "ArgumentParser",
        "import ArgumentParser\n\n@main struct Hello: ParsableCommand {\n"
        '    func run() { print("hello") }\n}\n',
    ),
}


def rows(run):
    folder = run.home / "building"
    folder.mkdir()
    source = run.subject.here.parent.parent
    # A part of it in a quick run, which shows that it works.
    whole = build_itself(source, folder, ["--target", "ThumbcacheProtocol"] if run.is_quick else [])
    hello = [build_hello(source, folder, name) for name in HELLO]
    mine, others = Figure("thumbcached", "s of CPU", [whole]), Figure("two hello-worlds", "s of CPU", [sum(hello)])
    yield Row(
        "B1",
        "CPU time of a release build from nothing",
        "bare swift-nio and swift-argument-parser",
        whole / sum(hello),
        2,
        False,
        figures=[mine, others],
        note="the time of the package manager and of everything that it starts",
    )


def build_itself(source, folder, words):
    home = folder / "thumbcached"
    shutil.copytree(source, home, symlinks=True, ignore=shutil.ignore_patterns(".build*", ".git", "dist"))
    return cpu_of_build(source, home, words)


def build_hello(source, folder, name):
    product, text = HELLO[name]
    home = folder / name / "hello"
    (home / "Sources/hello").mkdir(parents=True)
    (home / "Sources/hello" / ("Hello.swift" if "@main" in text else "main.swift")).write_text(text)
    checkout = source / ".build/checkouts" / name
    (home / "Package.swift").write_text(
        "// swift-tools-version: 6.0\nimport PackageDescription\n"
        f'let package = Package(name: "hello", dependencies: [.package(path: "{checkout}")], targets: [\n'
        f'    .executableTarget(name: "hello", dependencies: [.product(name: "{product}", package: "{name}")])])\n'
    )
    return cpu_of_build(source, home, [])


def cpu_of_build(source, home, words):
    """Seconds of user and system time of a release build in `home`, with the dependencies fetched for `source`."""
    (home / ".build").mkdir()
    for name in FETCHED:
        place = source / name
        if place.is_dir():
            shutil.copytree(place, home / name, symlinks=True)
        elif place.exists():
            shutil.copy2(place, home / name)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    processes.run(
        [processes.find("swift"), "build", "-c", "release", "--static-swift-stdlib", *words],
        cwd=home,
        timeout=7200,
        env={key: value for key, value in os.environ.items() if key != "THUMBCACHED_BENCH"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
