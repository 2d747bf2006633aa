/* What the renderer needs of C: libvips, whose calls take lists of arguments of any length, fork(2), and the filter
 * that a process puts upon itself before it looks at a picture. */
#ifndef CRENDERER_H
#define CRENDERER_H

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* How a picture is fitted into a square. */
enum crenderer_fit {
    /* It fills the square; what stands out is cut off on both sides alike. */
    CRENDERER_COVER = 0,
    /* It lies inside. */
    CRENDERER_CONTAIN = 1,
};

enum crenderer_format {
    /* The source's own; PNG for GIF, and WebP for AVIF. */
    CRENDERER_SOURCE = 0,
    CRENDERER_PNG = 1,
    CRENDERER_JPEG = 2,
    CRENDERER_WEBP = 3,
    /* No file: red, green, blue and opacity of each pixel, a byte each. */
    CRENDERER_PIXELS = 4,
};

enum crenderer_outcome {
    CRENDERER_DONE = 0,
    /* No decoder takes it, or it breaks off. */
    CRENDERER_BROKEN = 1,
    /* More pixels than were allowed, by its header. */
    CRENDERER_TOO_MANY_PIXELS = 2,
    /* A format that is not decoded here. */
    CRENDERER_UNKNOWN_FORMAT = 3,
};

struct crenderer_wish {
    /* Pixels of the square's side, 1 at least. */
    uint32_t side;
    enum crenderer_fit fit;
    enum crenderer_format format;
    /* Width times height of the source. */
    uint64_t most_pixels;
};

struct crenderer_picture {
    /* To be given back by crenderer_free. */
    void *bytes;
    size_t length;
    uint32_t width, height;
    /* Which it is; never CRENDERER_SOURCE. */
    enum crenderer_format format;
};

/* Loads libvips and lets it know PNG, JPEG, WebP, GIF and AVIF alone. 0, or -1 with the reason in `why`. Starts no
 * thread. Once in a process. */
int crenderer_load(const char *program, char *why, size_t room);

/* Makes a picture of another size: upright, in sRGB, without metadata, of an animation the first frame, and never
 * larger than the source. `why` has the reason where the outcome is another than CRENDERER_DONE. */
enum crenderer_outcome crenderer_render(
    const void *source, size_t length, const struct crenderer_wish *wish, struct crenderer_picture *picture, char *why,
    size_t room);

void crenderer_free(struct crenderer_picture *picture);

/* fork(2), which Swift does not have. */
pid_t crenderer_fork(void);

/* ppoll(2) without a limit of time, which Swift does not have. */
int crenderer_poll(struct pollfd *waits, size_t count, const sigset_t *signals);

/* Has the calling process killed when its parent ends: prctl(2), PR_SET_PDEATHSIG. 0, or -1 and errno, ESRCH where the
 * parent has ended. */
int crenderer_end_with(pid_t parent);

/* Gives way to whatever else the machine has to do: SCHED_BATCH and a nice value, sched(7). */
void crenderer_give_way(void);

/* Leaves the process nothing but reading and writing what is open, memory without a file behind it that is never
 * executed, threads, time and its end. Everything else fails with EPERM: seccomp(2), by libseccomp. 0, or an errno. */
int crenderer_confine(void);

#endif
