#define _GNU_SOURCE
#include "tries.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A Unix socket that can be connected. If socket(2) is refused, one of a pair of datagram sockets. */
static int unix_socket(int type)
{
    int made = socket(AF_UNIX, type | SOCK_CLOEXEC, 0), pair[2];
    if (made >= 0 || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) != 0) return made;
    close(pair[1]);
    return pair[0];
}

void try_connect(const char *name)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    size_t length = strnlen(name, sizeof address.sun_path - 1);
    memcpy(address.sun_path, name, length);
    if (*name == '@') address.sun_path[0] = 0;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (*name != '@'));

    int ours = unix_socket(SOCK_STREAM), result = -1;
    if (ours >= 0) result = connect(ours, (const struct sockaddr *)&address, size);
    if (result == -1 && ours >= 0 && errno == EPROTOTYPE) {
        close(ours);
        ours = unix_socket(SOCK_DGRAM);
        if (ours >= 0) result = connect(ours, (const struct sockaddr *)&address, size);
    }
    report(result, "connect ", name);
    if (ours >= 0) close(ours);
}

static void try_socket(int family, int type, int protocol, const char *what)
{
    int made = socket(family, type | SOCK_CLOEXEC, protocol);
    report(made, what, "");
    if (made >= 0) close(made);
}

void try_sockets(void)
{
    try_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP, "raw socket");
    try_socket(AF_PACKET, SOCK_RAW, 0, "packet socket");
    try_socket(AF_UNIX, SOCK_STREAM, 0, "unix socket");
    int pair[2];
    int result = socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair);
    report(result, "pair of datagram sockets", "");
    for (int i = 0; result == 0 && i < 2; i++) close(pair[i]);
}

/* Whether a descriptor is a Unix socket that is connected to, or was created by, another process. */
static int leads_to_a_process(int descriptor)
{
    int family;
    socklen_t length = sizeof family;
    if (getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &family, &length) != 0 || family != AF_UNIX) return 0;
    struct ucred peer;
    length = sizeof peer;
    return getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid != getpid();
}

/* The descriptor of the fetcher's connection to the daemon, which an attacker keeps. */
enum { CONNECTION = 3 };

void try_descriptors(void)
{
    int found = 0;
    for (int descriptor = 1; descriptor < 1024; descriptor++) {
        if (descriptor == CONNECTION) continue;
        char number[16];
        snprintf(number, sizeof number, "%d", descriptor);
        struct stat status;
        if (leads_to_a_process(descriptor)) {
            report(0, "process at the other end of descriptor ", number);
            found++;
        } else if (descriptor > 2 && fstat(descriptor, &status) == 0
                   && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode) || S_ISBLK(status.st_mode))) {
            report(0, "file at descriptor ", number);
            found++;
        }
    }
    errno = ENOENT;
    if (found == 0) report(-1, "descriptors of files or other processes", "");
}
