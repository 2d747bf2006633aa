/* Shared code of the minimal C servers: a server on a Unix socket that makes only the necessary system calls. */
#ifndef SERVE_H
#define SERVE_H
#include <stddef.h>
#include <sys/uio.h>

enum { AT_ONCE = 64, DESCRIPTORS = 4096 };

/* Allocates a reply with one image, a RESP bulk string, and returns the location of the image. The rest of the reply is
 * filled in. */
char *make_reply(struct iovec *reply, size_t image_length);

/* Returns the reply to the next frame. Up to AT_ONCE replies are sent in one call; `place` is the index within it. */
typedef struct iovec next_reply(int place);

/* Handles input of a connection; 0 bytes when it ends. Descriptors are less than DESCRIPTORS. */
typedef void received(int fd, const char *bytes, size_t length);

/* Handles all input in one thread. Does not return. */
_Noreturn void serve_input(const char *path, received *handle);

/* Counts frames of a fixed length and sends a reply to each, in one thread. Does not return. */
_Noreturn void serve(const char *path, size_t frame_length, next_reply *next);

#endif
