/* Simulates peers of other accounts, for tests that run as an unprivileged user.
 *
 * Loaded into a daemon with LD_PRELOAD, the library replaces getsockopt(SO_PEERCRED) and getsockopt(SO_PEERGROUPS).
 * A peer with the variable below in its environment gets the account that the variable names; for other peers the
 * kernel's result is returned.
 *
 *     THUMBCACHED_TEST_PEER=4001            uid and gid 4001, no supplementary groups
 *     THUMBCACHED_TEST_PEER=4001,60,61      with supplementary groups 60 and 61
 *
 * The library is not installed. */
#ifndef THUMBCACHED_FOREIGN_PEERS_H
#define THUMBCACHED_FOREIGN_PEERS_H

#include <sys/socket.h>

/* getsockopt(2), except for peers that name an account. ESRCH if the peer has ended and its environment is unreadable. */
int getsockopt(int descriptor, int level, int name, void *restrict value, socklen_t *restrict length);

#endif
