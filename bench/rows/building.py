"""B1: CPU time of a clean release build, compared with minimal programs that use the two largest dependencies."""

import os
import resource
import shutil

from figures import Figure, Row
from world import processes

#: Files of SwiftPM for the dependencies; with them a build downloads nothing.
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
    # A quick run builds only one target.
    whole = build_itself(source, folder, ["--target", "ThumbcacheProtocol"] if run.is_quick else [])
    hello = [build_hello(source, folder, name) for name in HELLO]
    mine = Figure("thumbcached", "s of CPU", [whole])
    others = Figure("two hello-world programs", "s of CPU", [sum(hello)])
    yield Row(
        "B1",
        "CPU time of a clean release build",
        "hello-world programs with swift-nio and swift-argument-parser",
        whole / sum(hello),
        2,
        False,
        figures=[mine, others],
        note="includes the package manager and all processes that it starts",
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
    """Returns the CPU seconds of a release build in `home`, with the dependencies that `source` has fetched."""
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
