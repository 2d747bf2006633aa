"""A separate file system for a measurement, so that the result does not depend on the machine's file system."""

import contextlib
import os
import shutil

from world import processes


#: MiB: mkfs's default for a disk of 32 to 64 GiB. Its default for these small file systems, 32 to 128 MiB, fills up within
#: a run, and writers then wait until it is written back.
JOURNAL = 256


@contextlib.contextmanager
def file_system(folder, count):
    """Yields a directory for `count` small files. For root it is a new ext4 in a loop device, with default options but a
    larger journal; otherwise an ordinary directory.

    The file systems of containers and small virtual machines may lack a journal, which changes the cost of creating and
    deleting files and of fsync. Unmounting is also much faster than deleting two million files.
    """
    place = folder / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        yield place
        return shutil.rmtree(place)
    file = folder / "disk.ext4"
    with open(file, "wb") as sparse:
        sparse.truncate(max(count * 12 << 10, 1 << 30) + (JOURNAL << 20))
    processes.run(
        [processes.find("mkfs.ext4"), "-q", "-F", "-N", max(count * 5 // 2, 65_536), "-J", f"size={JOURNAL}", file]
    )
    processes.run([processes.find("mount"), "-o", "loop,noatime", file, place])
    try:
        yield place
    finally:
        processes.run([processes.find("umount"), "--lazy", place])
        place.rmdir()
        file.unlink()
