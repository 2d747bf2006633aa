/* C that the renderer cannot call from Swift: libvips, whose functions are variadic, and fork(2). */
#ifndef CRENDERER_H
#define CRENDERER_H

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* How an image is fitted into a square. DeclarationTests compares these numbers with ImageFit and RenderOutput. */
enum crenderer_fit {
    /* Fills the square; the longer side is cropped equally at both ends. */
    CRENDERER_COVER = 0,
    /* Lies inside the square. */
    CRENDERER_CONTAIN = 1,
};

enum crenderer_format {
    /* The format of the source; PNG for GIF, and WebP for AVIF. */
    CRENDERER_SOURCE = 0,
    CRENDERER_PNG = 1,
    CRENDERER_JPEG = 2,
    CRENDERER_WEBP = 3,
    /* Not a file: red, green, blue and alpha of each pixel, one byte each, in rows from the top. */
    CRENDERER_PIXELS = 4,
};

enum crenderer_outcome {
    CRENDERER_DONE = 0,
    /* No decoder accepts the source, or it is truncated. */
    CRENDERER_BROKEN = 1,
    /* By its header, the source has more than `max_pixels` pixels. */
    CRENDERER_TOO_MANY_PIXELS = 2,
    /* Not one of the supported formats. */
    CRENDERER_UNKNOWN_FORMAT = 3,
};

struct crenderer_options {
    /* Pixels on a side of the square, at least 1. */
    uint32_t side;
    enum crenderer_fit fit;
    enum crenderer_format format;
    /* Maximum of width times height of the source. */
    uint64_t max_pixels;
};

struct crenderer_image {
    /* Freed by crenderer_free. */
    void *bytes;
    size_t length;
    uint32_t width, height;
    /* Never CRENDERER_SOURCE. */
    enum crenderer_format format;
};

/* Loads libvips with the decoders for PNG, JPEG, WebP, GIF and AVIF only, and makes all threads share one malloc arena:
 * each further arena takes 64 MiB of the limited address space. Returns 0, or -1 with a message in `reason`. Starts no
 * thread. Call it once in a process. */
int crenderer_load(const char *program, char *reason, size_t capacity);

/* Renders an image in another size: upright, in sRGB, without metadata, the first frame of an animation, and never
 * larger than the source. Unless the outcome is CRENDERER_DONE, `reason` receives a message.
 *
 * A truncated source is CRENDERER_BROKEN, except that pixels missing from a GIF are transparent. A JPEG must end with
 * an EOI marker; bytes after the first marker are ignored. */
enum crenderer_outcome crenderer_render(
    const void *source, size_t length, const struct crenderer_options *options, struct crenderer_image *rendition,
    char *reason, size_t capacity);

void crenderer_free(struct crenderer_image *image);

/* fork(2). */
pid_t crenderer_fork(void);

/* ppoll(2) for at most `seconds`; a negative number is no limit. */
int crenderer_poll(struct pollfd *waits, size_t count, int seconds, const sigset_t *signals);

/* Has the kernel kill the calling process when its parent ends: prctl(2), PR_SET_PDEATHSIG. Returns 0, or -1 with
 * errno; ESRCH if the parent has ended already. */
int crenderer_end_with(pid_t parent);

/* Lowers the priority of the calling process: SCHED_BATCH and a nice value, sched(7). */
void crenderer_lower_priority(void);

#endif
