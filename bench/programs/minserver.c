/* A minimal server on a Unix socket: sends prepared replies, IMAGES different ones in turn. Its CPU time is that of the
 * kernel, a lower bound for any server.
 *
 *     minserver SOCKET FRAME-LENGTH IMAGE-LENGTH IMAGES */
#include "serve.h"
#include <err.h>
#include <stdlib.h>
#include <string.h>

static struct iovec *replies;
static int image_count, next_image;

static struct iovec next_ready(int place) {
    (void)place;
    struct iovec reply = replies[next_image];
    next_image = (next_image + 1) % image_count;
    return reply;
}

int main(int argc, char **argv) {
    if (argc != 5) errx(2, "minserver SOCKET FRAME-LENGTH IMAGE-LENGTH IMAGES");
    size_t frame_length = (size_t)atol(argv[2]), image_length = (size_t)atol(argv[3]);
    image_count = atoi(argv[4]);
    if (frame_length == 0 || image_count < 1) errx(2, "frames have at least 1 byte, and there is at least 1 image");
    replies = calloc((size_t)image_count, sizeof *replies);
    for (int i = 0; i < image_count; i++) memset(make_reply(&replies[i], image_length), 'x', image_length);
    serve(argv[1], frame_length, next_ready);
}
