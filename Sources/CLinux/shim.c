/* CLinux: see include/shim.h. */
#define _GNU_SOURCE

#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <malloc.h>
#include <semaphore.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <dirent.h>
#include <linux/magic.h>
#include <linux/openat2.h>

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

_Static_assert(sizeof(uid_t) == sizeof(uint32_t) && sizeof(gid_t) == sizeof(uint32_t), "ids have 32 bits");
_Static_assert(offsetof(struct dirent64, d_reclen) == 16, "the layout of a directory entry");
_Static_assert(offsetof(struct dirent64, d_type) == 18, "the layout of a directory entry");
_Static_assert(offsetof(struct dirent64, d_name) == 19, "the layout of a directory entry");
_Static_assert(RESOLVE_NO_SYMLINKS == 0x04 && RESOLVE_BENEATH == 0x08, "the kernel's flags");

_Static_assert(EPOLLIN == 0x001 && EPOLLOUT == 0x004 && EPOLLERR == 0x008 && EPOLLHUP == 0x010, "the kernel's flags");
_Static_assert(EPOLLET == 1u << 31, "the kernel's flags");
_Static_assert(sizeof(struct clinux_span) == sizeof(struct iovec), "spans are passed to the kernel as iovecs");
_Static_assert(offsetof(struct clinux_span, start) == offsetof(struct iovec, iov_base), "the layout of a span");
_Static_assert(offsetof(struct clinux_span, length) == offsetof(struct iovec, iov_len), "the layout of a span");

const int CLINUX_O_NOATIME = O_NOATIME;
const int CLINUX_O_PATH = O_PATH;

int clinux_peer_credentials(int fd, uint32_t *uid, uint32_t *gid, int32_t *pid) {
    struct ucred credentials;
    socklen_t length = sizeof credentials;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return -1;
    if (length != sizeof credentials) {
        errno = EPROTO;
        return -1;
    }
    *uid = credentials.uid;
    *gid = credentials.gid;
    *pid = credentials.pid;
    return 0;
}

int clinux_peer_groups(int fd, uint32_t *groups, int capacity) {
    if (capacity < 0) {
        errno = EINVAL;
        return -1;
    }
    socklen_t length = (socklen_t)((size_t)capacity * sizeof(gid_t));
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length) != 0) return -1;
    return (int)(length / sizeof(gid_t));
}

int clinux_epoll_create(void) {
    return epoll_create1(EPOLL_CLOEXEC);
}

static int set(int epoll, int operation, int fd, uint32_t events, uint64_t tag) {
    struct epoll_event event = {.events = events, .data.u64 = tag};
    return epoll_ctl(epoll, operation, fd, &event);
}

int clinux_epoll_add(int epoll, int fd, uint32_t events, uint64_t tag) {
    return set(epoll, EPOLL_CTL_ADD, fd, events, tag);
}

int clinux_epoll_change(int epoll, int fd, uint32_t events, uint64_t tag) {
    return set(epoll, EPOLL_CTL_MOD, fd, events, tag);
}

int clinux_epoll_remove(int epoll, int fd) {
    return epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
}

int clinux_epoll_wait(int epoll, struct clinux_ready *ready, int64_t nanoseconds) {
    struct epoll_event events[CLINUX_READY_AT_ONCE];
    struct timespec timeout = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
    int count = epoll_pwait2(epoll, events, CLINUX_READY_AT_ONCE, nanoseconds < 0 ? NULL : &timeout, NULL);
    if (count == -1 && (errno == ENOSYS || errno == EPERM)) {
        int64_t milliseconds = nanoseconds < 0 ? -1 : (nanoseconds + 999999) / 1000000;
        count = epoll_wait(epoll, events, CLINUX_READY_AT_ONCE, milliseconds > INT_MAX ? INT_MAX : (int)milliseconds);
    }
    for (int i = 0; i < count; i++) {
        ready[i].tag = events[i].data.u64;
        ready[i].events = events[i].events;
    }
    return count;
}

int clinux_eventfd(void) {
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

int clinux_inotify(void) {
    return inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
}

int clinux_watch_directory(int inotify, const char *path) {
    return inotify_add_watch(
        inotify, path,
        IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ATTRIB | IN_ONLYDIR | IN_DONT_FOLLOW);
}

int clinux_stop_watching_directory(int inotify, int watch) {
    return inotify_rm_watch(inotify, watch);
}

int clinux_accept(int fd) {
    return accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

ptrdiff_t clinux_send(int fd, const struct clinux_span *spans, size_t count) {
    struct msghdr message = {.msg_iov = (struct iovec *)spans, .msg_iovlen = count};
    return sendmsg(fd, &message, MSG_NOSIGNAL);
}

uint32_t clinux_file_system(const char *path) {
    struct statfs found;
    return statfs(path, &found) == 0 ? (uint32_t)found.f_type : 0;
}

int clinux_is_remote(int fd) {
    struct statfs found;
    if (fstatfs(fd, &found) != 0) return 1;
    switch ((uint32_t)found.f_type) {
    case NFS_SUPER_MAGIC:
    case SMB_SUPER_MAGIC:
    case CIFS_SUPER_MAGIC:
    case SMB2_SUPER_MAGIC:
    case FUSE_SUPER_MAGIC:
    case V9FS_MAGIC:
    case CEPH_SUPER_MAGIC:
    case AFS_SUPER_MAGIC:
    case CODA_SUPER_MAGIC:
        return 1;
    default:
        return 0;
    }
}

int clinux_openat2(int directory, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve) {
    struct open_how how;
    memset(&how, 0, sizeof how);
    how.flags = flags;
    how.mode = mode;
    how.resolve = resolve;
    return (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
}

ptrdiff_t clinux_pread_nowait(int fd, void *buffer, size_t length, int64_t offset) {
    struct iovec vector = {.iov_base = buffer, .iov_len = length};
    return preadv2(fd, &vector, 1, (off_t)offset, RWF_NOWAIT);
}

int clinux_rename_exchange(int from_directory, const char *from, int to_directory, const char *to) {
    return (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, 2u /* RENAME_EXCHANGE */);
}

ptrdiff_t clinux_getdents64(int fd, void *buffer, size_t length) {
    return (ptrdiff_t)syscall(SYS_getdents64, fd, buffer, length);
}

void clinux_name_thread(const char *name) {
    prctl(PR_SET_NAME, (unsigned long)name, 0L, 0L, 0L);
}

int clinux_wait_semaphore(void *semaphore, int64_t milliseconds) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += milliseconds / 1000;
    end.tv_nsec += milliseconds % 1000 * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec += 1;
        end.tv_nsec -= 1000000000;
    }
    return sem_clockwait(semaphore, CLOCK_MONOTONIC, &end);
}

int clinux_set_dumpable(int dumpable) {
    return prctl(PR_SET_DUMPABLE, dumpable ? 1L : 0L, 0L, 0L, 0L);
}

int clinux_set_user(uint32_t uid) {
    return setresuid(uid, uid, uid);
}

int clinux_set_group(uint32_t gid) {
    return setresgid(gid, gid, gid);
}

const char *clinux_error_name(int code) {
    return strerrorname_np(code);
}

void clinux_wipe(void *memory, size_t length) {
    explicit_bzero(memory, length);
}

int clinux_fill_standard_descriptors(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) != -1) continue;
        if (errno != EBADF) return -1;
        /* open(2) returns the lowest free descriptor, which is this one. */
        if (open("/dev/null", O_RDWR) == -1) return -1;
    }
    return 0;
}

void clinux_overwrite_freed_memory(void) {
    mallopt(M_PERTURB, 0xff);
}

void clinux_limit_arenas(void) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    mallopt(M_ARENA_MAX, processors > 2 ? 2 * (int)processors : 4);
}

void clinux_trim_heap(void) {
    malloc_trim(0);
}

union descriptor_message {
  struct cmsghdr header;
  char room[CMSG_SPACE(sizeof(int))];
};

int clinux_send_descriptor(int socket, int fd, unsigned char byte) {
  struct iovec data = {.iov_base = &byte, .iov_len = 1};
  union descriptor_message control = {0};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  ssize_t count;
  do {
    count = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  return count < 0 ? -1 : 0;
}

int clinux_receive_descriptor(int socket, unsigned char *sent) {
  unsigned char byte = 0;
  struct iovec data = {.iov_base = &byte, .iov_len = 1};
  union descriptor_message control = {0};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
  ssize_t count;
  do {
    count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) {
    if (count == 0) errno = 0;
    return -1;
  }
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
    errno = EPROTO;
    return -1;
  }
  if (sent) *sent = byte;
  int fd;
  memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

int clinux_close_from(int first) {
  return (int)syscall(SYS_close_range, first, ~0U, 0);
}

/* Called by dl_iterate_phdr(3) for the program and each of its libraries. */
static int release_pages(struct dl_phdr_info *object, size_t size, void *unused) {
    (void)size;
    (void)unused;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W) != 0) continue;
        uintptr_t start = object->dlpi_addr + segment->p_vaddr;
        uintptr_t first = start & ~(page - 1);
        /* Best effort: without it, the process only uses more memory. */
        madvise((void *)first, start - first + segment->p_memsz, MADV_DONTNEED);
    }
    return 0;
}

void clinux_release_program_pages(void) {
    dl_iterate_phdr(release_pages, NULL);
}
