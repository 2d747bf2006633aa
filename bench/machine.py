"""Describes the machine and the versions of the programs, without paths and host names."""

import os
import pathlib
import platform
import re
import subprocess

from world import processes

PROGRAMS = [
    ("redis-server", ["redis-server", "--version"], r"v=([\d.]+)"),
    ("memcached", ["memcached", "-V"], r"memcached ([\d.]+)"),
    ("nginx", ["nginx", "-v"], r"nginx/([\d.]+)"),
    ("varnish", ["varnishd", "-V"], r"varnish-([\d.]+)"),
    ("curl", ["curl", "--version"], r"curl ([\d.]+)"),
    ("h2load", ["h2load", "--version"], r"nghttp2/([\d.]+)"),
]


def describe(home):
    return {
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory() / 2**30),
        "kernel": platform.release(),
        "file_system": file_system(home),
        "system": system(),
        "versions": {name: version(words, pattern) for name, words, pattern in PROGRAMS},
    }


def cpu():
    found = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def memory():
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def system():
    found = re.search(r'PRETTY_NAME="(.*)"', pathlib.Path("/etc/os-release").read_text())
    return found[1] if found else platform.system()


def file_system(directory):
    """Returns the type of the file system that contains a directory."""
    best = ("", "unknown")
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, point, kind = line.split()[:3]
        if (str(directory) + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


def version(words, pattern):
    try:
        program = processes.find(words[0])
    except processes.Failed:
        return "not installed"
    done = subprocess.run([program, *words[1:]], capture_output=True, text=True)
    found = re.search(pattern, done.stdout + done.stderr)
    return found[1] if found else "unknown"


def in_words(machine):
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; Linux {machine['kernel']}, "
        f"{machine['file_system']}; {machine['system']}; {versions}"
    )
