/* Linux functions that Swift's Glibc module does not export: GNU extensions, macros and variadic functions. Unless
 * stated otherwise, each makes one system call and returns its result, with errno set.
 *
 * Does not define _GNU_SOURCE and includes little: it would change types of the C library in this module, and Swift
 * rejects a program that imports both variants. */
#ifndef CLINUX_SHIM_H
#define CLINUX_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* The credentials of the peer of a Unix socket: unix(7), SO_PEERCRED. Returns 0, or -1 with errno. */
int clinux_peer_credentials(int fd, uint32_t *uid, uint32_t *gid, int32_t *pid);

/* The supplementary groups of the peer: SO_PEERGROUPS, Linux 4.13. Fills at most `capacity` ids and returns their
 * number; -1 with errno ERANGE if there are more. */
int clinux_peer_groups(int fd, uint32_t *groups, int capacity);

/* Readiness of descriptors: epoll(7). */
struct clinux_ready {
    /* The value given with the descriptor. */
    uint64_t tag;
    uint32_t events;
};

static const uint32_t CLINUX_EPOLLIN = 0x001;
static const uint32_t CLINUX_EPOLLOUT = 0x004;
/* Always reported. */
static const uint32_t CLINUX_EPOLLERR = 0x008;
static const uint32_t CLINUX_EPOLLHUP = 0x010;
/* Edge-triggered. */
static const uint32_t CLINUX_EPOLLET = 1u << 31;

/* Creates an epoll instance with EPOLL_CLOEXEC: epoll_create1(2). */
int clinux_epoll_create(void);

/* Add, change or remove a watched descriptor: epoll_ctl(2). */
int clinux_epoll_add(int epoll, int fd, uint32_t events, uint64_t tag);
int clinux_epoll_change(int epoll, int fd, uint32_t events, uint64_t tag);
int clinux_epoll_remove(int epoll, int fd);

/* Waits until descriptors are ready, for at most `nanoseconds`, or without limit if negative. Fills at most
 * CLINUX_READY_AT_ONCE elements, for which there must be space. epoll_pwait2(2), Linux 5.11. If that is missing or a
 * filter rejects it, calls epoll_wait(2) with whole milliseconds. */
enum { CLINUX_READY_AT_ONCE = 64 };
int clinux_epoll_wait(int epoll, struct clinux_ready *ready, int64_t nanoseconds);

/* A non-blocking counter with EFD_CLOEXEC: eventfd(2). */
int clinux_eventfd(void);

/* A non-blocking inotify instance with IN_CLOEXEC: inotify(7). */
int clinux_inotify(void);
/* Watches a directory for new entries and for its own removal, move, or change of mode or owner. Does not follow a link
 * in place of the directory. Returns the number of the watch, the same if it is watched already; -1 with errno. */
int clinux_watch_directory(int inotify, const char *path);
int clinux_stop_watching_directory(int inotify, int watch);

/* Accepts a connection as a non-blocking socket with SOCK_CLOEXEC: accept4(2). Returns -1 with errno, EAGAIN if none is
 * pending. */
int clinux_accept(int fd);

struct clinux_span {
    const void *start;
    size_t length;
};

/* Sends spans in order without SIGPIPE and returns the number of bytes sent: sendmsg(2). */
ptrdiff_t clinux_send(int fd, const struct clinux_span *spans, size_t count);

/* Whether the file system depends on another machine or process, which may not respond; 1 also if unknown. fstatfs(2).
 */
int clinux_is_remote(int fd);

/* The magic number of the file system of a path; 0 if unknown. statfs(2), f_type. */
uint32_t clinux_file_system(const char *path);

/* openat2(2), Linux 5.6. `resolve`: CLINUX_RESOLVE flags. */
int clinux_openat2(int directory, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve);

static const uint64_t CLINUX_RESOLVE_NO_SYMLINKS = 0x04;
static const uint64_t CLINUX_RESOLVE_BENEATH = 0x08;
/* Fails with EAGAIN instead of blocking on a disk. Linux 5.12. */
static const uint64_t CLINUX_RESOLVE_CACHED = 0x20;

/* open(2) flags. O_NOATIME fails with EPERM for files of other users. */
extern const int CLINUX_O_NOATIME;
extern const int CLINUX_O_PATH;

/* Reads from the page cache only: preadv2(2) with RWF_NOWAIT. May be short. Returns -1 with errno: EAGAIN if nothing is
 * cached, EOPNOTSUPP if the file system has no support. */
ptrdiff_t clinux_pread_nowait(int fd, void *buffer, size_t length, int64_t offset);

/* Swaps two names atomically: renameat2(2), RENAME_EXCHANGE. */
int clinux_rename_exchange(int from_directory, const char *from, int to_directory, const char *to);

/* Fills `buffer` with directory entries and returns the bytes filled, 0 at the end: getdents64(2). */
ptrdiff_t clinux_getdents64(int fd, void *buffer, size_t length);

/* Offsets in an entry of getdents64: its length (2 bytes), the type (1 byte, such as DT_REG), and the name, which is
 * NUL-terminated. */
static const int CLINUX_DIRENT_LENGTH_OFFSET = 16;
static const int CLINUX_DIRENT_TYPE_OFFSET = 18;
static const int CLINUX_DIRENT_NAME_OFFSET = 19;

/* Sets the name of the calling thread, at most 15 characters: prctl(2), PR_SET_NAME. */
void clinux_name_thread(const char *name);

/* Waits for a sem_t for at most `milliseconds` of CLOCK_MONOTONIC: sem_clockwait(3). Returns 0, or -1 with errno. */
int clinux_wait_semaphore(void *semaphore, int64_t milliseconds);

/* Sends a descriptor and a byte over the Unix socket `socket`: unix(7), SCM_RIGHTS. Returns 0, or -1 with errno. */
int clinux_send_descriptor(int socket, int fd, unsigned char byte);

/* Receives a descriptor with O_CLOEXEC, and the byte sent with it unless `byte` is NULL. Blocks. Returns -1 with errno
 * on failure: 0 at the end, EPROTO for a message without a descriptor. */
int clinux_receive_descriptor(int socket, unsigned char *byte);

/* Closes all descriptors from `first` on: close_range(2). Returns 0, or -1 with errno. */
int clinux_close_from(int first);

/* Sets whether the process may leave a core file or be read through /proc: prctl(2), PR_SET_DUMPABLE. */
int clinux_set_dumpable(int dumpable);

/* Set the real, effective and saved ids of all threads: setresuid(2), setresgid(2). Return 0, or -1 with errno. */
int clinux_set_user(uint32_t uid);
int clinux_set_group(uint32_t gid);

/* Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed. Otherwise a file opened later would get the
 * number, and receive standard output or error. Several calls. Returns 0, or -1 with errno. */
int clinux_fill_standard_descriptors(void);

/* The name of an errno, such as "ENOENT", or NULL. */
const char *clinux_error_name(int code);

/* Zeroes memory in a way that the optimizer must not remove: explicit_bzero(3). */
void clinux_wipe(void *memory, size_t length);

/* Makes the allocator overwrite freed memory, except blocks of up to 1032 bytes in per-thread caches: mallopt(3),
 * M_PERTURB. */
void clinux_overwrite_freed_memory(void);

/* Limits the allocator to two arenas per processor, at least four: mallopt(3), M_ARENA_MAX. The default is eight per
 * processor, and each arena kept up to 2 MiB of freed memory after renditions. Call this before any thread starts. */
void clinux_limit_arenas(void);

/* Removes the read-only pages of the program and its libraries from the memory of the process: madvise(2),
 * MADV_DONTNEED. The kernel maps a page again when it is used. A program calls this when it has started, because only the
 * start uses several MiB of them, for example the symbol tables. Breakpoints and probes set before are lost. */
void clinux_release_program_pages(void);

/* Returns freed memory to the kernel: malloc_trim(3). */
void clinux_trim_heap(void);

#endif
