"""A file system of a run's own: made as anybody's is, whatever the machine's own is like, and gone in a moment."""

import contextlib
import os
import shutil

from world import processes


@contextlib.contextmanager
def own(folder, count):
    """A place for `count` small files. Root gets an ext4 in one file, as mkfs.ext4 makes it: with a journal, which the
    file systems of containers and small virtual machines at times lack, so that making and deleting files and fsync
    cost another time there. Deleting
    two million names one by one would take longer than all the rest, too. Others get a directory."""
    place = folder / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        yield place
        return shutil.rmtree(place)
    file = folder / "disk.ext4"
    with open(file, "wb") as sparse:
        sparse.truncate(max(count * 12 << 10, 1 << 30))
    processes.run([processes.find("mkfs.ext4"), "-q", "-F", "-N", max(count * 5 // 2, 65_536), file])
    processes.run([processes.find("mount"), "-o", "loop,noatime", file, place])
    try:
        yield place
    finally:
        processes.run([processes.find("umount"), "--lazy", place])
        file.unlink()
