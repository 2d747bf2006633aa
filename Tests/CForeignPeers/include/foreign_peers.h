/* Stands in for what the kernel says of a peer, where the tests are not run by root and so can be one account only.
 *
 * Loaded into a daemon with LD_PRELOAD, it answers for getsockopt(SO_PEERCRED) and getsockopt(SO_PEERGROUPS): a
 * peer that was started with this in its environment is the account that it names there, any other is what the
 * kernel says.
 *
 *     THUMBCACHED_TEST_PEER=4001            uid and group 4001, no further groups
 *     THUMBCACHED_TEST_PEER=4001,60,61      and the groups 60 and 61 besides
 *
 * Nothing of it is in what is installed. */
#ifndef THUMBCACHED_FOREIGN_PEERS_H
#define THUMBCACHED_FOREIGN_PEERS_H

#include <sys/socket.h>

/* getsockopt(2), but for peers that name an account. ESRCH for a peer that has ended: what it named cannot be known. */
int getsockopt(int descriptor, int level, int name, void *restrict value, socklen_t *restrict length);

#endif
