/* What the loops in C share: a server on a Unix socket with nothing around its system calls. */
#ifndef SERVE_H
#define SERVE_H
#include <stddef.h>
#include <sys/uio.h>

enum { AT_ONCE = 64 };

/* Makes room for a reply of one image, a bulk string of RESP, and returns where the image goes. The rest of the
 * reply is there. */
char *make_reply(struct iovec *reply, size_t image_length);

/* The reply to the next frame. Up to AT_ONCE of them leave in one call, each with a place of its own below that. */
typedef struct iovec next_reply(int place);

/* One thread that waits, reads, counts frames of a length it was told, and sends a reply to each. Does not return. */
_Noreturn void serve(const char *path, size_t frame_length, next_reply *next);

#endif
