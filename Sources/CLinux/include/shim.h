/* What Linux offers and Swift's Glibc module hides, because it is a GNU extension, a macro or variadic. Each function
 * does one system call, unless it says otherwise, and returns what that returned, with errno set.
 *
 * The header itself is plain C and includes next to nothing: with _GNU_SOURCE here, types of the C library would have
 * another shape in this module than in others, and Swift refuses a program that imports both. */
#ifndef CLINUX_SHIM_H
#define CLINUX_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* Who is at the other end of a Unix socket: unix(7), SO_PEERCRED. 0, or -1 with errno. */
int clinux_peer_credentials(int fd, uint32_t *uid, uint32_t *gid, int32_t *pid);

/* The supplementary groups of the other end: SO_PEERGROUPS, Linux 4.13. Fills at most `capacity` ids and returns how
 * many there are; -1 with errno ERANGE when there are more than `capacity`. */
int clinux_peer_groups(int fd, uint32_t *groups, int capacity);

/* Waiting for descriptors to be ready: epoll(7). */
struct clinux_ready {
    /* What was given with the descriptor. */
    uint64_t tag;
    uint32_t events;
};

static const uint32_t CLINUX_EPOLLIN = 0x001;
static const uint32_t CLINUX_EPOLLOUT = 0x004;
/* These two come unasked. */
static const uint32_t CLINUX_EPOLLERR = 0x008;
static const uint32_t CLINUX_EPOLLHUP = 0x010;
/* Told once for each time that something happens, not for as long as it holds. */
static const uint32_t CLINUX_EPOLLET = 1u << 31;

/* A new epoll instance, closed on exec: epoll_create1(2). */
int clinux_epoll_create(void);

/* Watches a descriptor that is not watched yet, changes what for one that is, or watches it no more: epoll_ctl(2). */
int clinux_epoll_add(int epoll, int fd, uint32_t events, uint64_t tag);
int clinux_epoll_change(int epoll, int fd, uint32_t events, uint64_t tag);
int clinux_epoll_remove(int epoll, int fd);

/* Waits until something is ready, for so many nanoseconds at most (for ever if negative), and fills in what is: at
 * most CLINUX_READY_AT_ONCE, which there has to be room for. epoll_pwait2(2), Linux 5.11; where a filter knows no
 * such call, a second one, epoll_wait(2), in whole milliseconds. */
enum { CLINUX_READY_AT_ONCE = 64 };
int clinux_epoll_wait(int epoll, struct clinux_ready *ready, int64_t nanoseconds);

/* A counter that can be watched, not blocking, closed on exec: eventfd(2). */
int clinux_eventfd(void);

/* A queue of changes of directories, not blocking, closed on exec: inotify(7). */
int clinux_inotify(void);
/* Reports every entry that appears in a directory, and when the directory itself is removed, moved or gets another
 * mode or owner. No symbolic link is followed in place of the directory. Returns the number of the watch, which is the
 * same when the directory is watched already; -1 with errno. */
int clinux_watch_directory(int inotify, const char *path);
int clinux_stop_watching_directory(int inotify, int watch);

/* The next connection that waits, not blocking, closed on exec: accept4(2). -1 with errno, EAGAIN if there is none. */
int clinux_accept(int fd);

struct clinux_span {
    const void *start;
    size_t length;
};

/* Sends the spans one behind the other and returns how many bytes were taken. No SIGPIPE. sendmsg(2). */
ptrdiff_t clinux_send(int fd, const struct clinux_span *spans, size_t count);

/* Whether the file system of an open file asks another machine or process for what it holds, which may not answer;
 * also 1 when it cannot be told. fstatfs(2). */
int clinux_is_remote(int fd);

/* The magic number of the file system of a path; 0 when it cannot be told. statfs(2), f_type. */
uint32_t clinux_file_system(const char *path);

/* openat2(2), Linux 5.6. `resolve` is a sum of the CLINUX_RESOLVE flags. */
int clinux_openat2(int directory, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve);

static const uint64_t CLINUX_RESOLVE_NO_SYMLINKS = 0x04;
static const uint64_t CLINUX_RESOLVE_BENEATH = 0x08;
/* Answer EAGAIN rather than wait for a disk: Linux 5.12. */
static const uint64_t CLINUX_RESOLVE_CACHED = 0x20;

/* A read with this flag leaves the access time alone; EPERM for files of another user. open(2). */
extern const int CLINUX_O_NOATIME;
extern const int CLINUX_O_PATH;

/* Reads only what is in memory already, else -1 with EAGAIN; EOPNOTSUPP on file systems that cannot tell. May be
 * short. preadv2(2) with RWF_NOWAIT. */
ptrdiff_t clinux_pread_nowait(int fd, void *buffer, size_t length, int64_t offset);

/* Swaps two names in one step. renameat2(2), RENAME_EXCHANGE. */
int clinux_rename_exchange(int from_directory, const char *from, int to_directory, const char *to);

/* Fills `buffer` with directory entries and returns the bytes filled, 0 at the end. getdents64(2). */
ptrdiff_t clinux_getdents64(int fd, void *buffer, size_t length);

/* Where things lie in an entry that getdents64 wrote: the length of the whole entry (2 bytes), the type (1 byte: DT_REG
 * and so on), and the name, which a zero byte ends. */
static const int CLINUX_DIRENT_LENGTH_OFFSET = 16;
static const int CLINUX_DIRENT_TYPE_OFFSET = 18;
static const int CLINUX_DIRENT_NAME_OFFSET = 19;

/* Names the calling thread for the system's tools; 15 characters at most. prctl(2), PR_SET_NAME. */
void clinux_name_thread(const char *name);

/* Waits for a permit of a sem_t for so long at most, by CLOCK_MONOTONIC: sem_clockwait(3). 0, or -1 with errno. */
int clinux_wait_semaphore(void *semaphore, int64_t milliseconds);

/* Sends a descriptor and a byte over the Unix socket `socket`: unix(7), SCM_RIGHTS. Returns 0, or -1 with errno. */
int clinux_send_descriptor(int socket, int fd, unsigned char byte);

/* Receives the next descriptor, which is closed in programs that are started, and the byte sent with it, unless `byte` is
 * null. Blocks. Returns -1 with errno on failure: 0 at the end, EPROTO for a message without a descriptor. */
int clinux_receive_descriptor(int socket, unsigned char *byte);

/* Closes every descriptor from `first` on: close_range(2). 0, or -1 with errno. */
int clinux_close_from(int first);

/* Whether the process may leave a core file or be read through /proc: prctl(2), PR_SET_DUMPABLE. */
int clinux_set_dumpable(int dumpable);

/* Makes real, effective and saved ids of all threads these: setresuid(2), setresgid(2). 0, or -1 with errno. */
int clinux_set_user(uint32_t uid);
int clinux_set_group(uint32_t gid);

/* Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed: else the next file that is opened gets its
 * number, and what is written to standard output or error ends up in it. Several calls. 0, or -1 with errno. */
int clinux_fill_standard_descriptors(void);

/* The name of an error number, such as "ENOENT"; NULL for a number that has none. */
const char *clinux_error_name(int code);

/* Zeroes memory in a way that the optimiser may not drop: explicit_bzero(3). */
void clinux_wipe(void *memory, size_t length);

/* Has the allocator overwrite what is freed, but for pieces of up to 1032 bytes, which each thread keeps for its
 * next use: mallopt(3), M_PERTURB. */
void clinux_overwrite_freed_memory(void);

/* Gives memory that was freed back to the kernel: malloc_trim(3). */
void clinux_trim_heap(void);

#endif
