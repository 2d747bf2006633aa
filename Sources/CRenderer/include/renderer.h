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
    /* No decoder accepts it, or it ends early. */
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

/* Loads libvips with the decoders for PNG, JPEG, WebP, GIF and AVIF alone, and lets all threads share one malloc arena:
 * each further arena takes 64 MiB of address space, which is limited. Returns 0, or -1 with the reason in `why`. Starts
 * no thread. Call it once in a process. */
int crenderer_load(const char *program, char *why, size_t room);

/* Makes a picture of another size: upright, in sRGB, without metadata, of an animation the first frame, and never
 * larger than the source. `why` has the reason where the outcome is another than CRENDERER_DONE.
 *
 * A source that ends early is CRENDERER_BROKEN, but for a GIF, which lacks pixels: those are transparent. A JPEG has to
 * end with an EOI marker; trailing bytes after the first are ignored. */
enum crenderer_outcome crenderer_render(
    const void *source, size_t length, const struct crenderer_wish *wish, struct crenderer_picture *picture, char *why,
    size_t room);

void crenderer_free(struct crenderer_picture *picture);

/* fork(2), which Swift does not have. */
pid_t crenderer_fork(void);

/* ppoll(2), which Swift does not have, for at most `seconds`; a negative number is no limit. */
int crenderer_poll(struct pollfd *waits, size_t count, int seconds, const sigset_t *signals);

/* Has the calling process killed when its parent ends: prctl(2), PR_SET_PDEATHSIG. 0, or -1 and errno, ESRCH where the
 * parent has ended. */
int crenderer_end_with(pid_t parent);

/* Gives way to whatever else the machine has to do: SCHED_BATCH and a nice value, sched(7). */
void crenderer_give_way(void);

/* Makes each thread that the calling process starts from now on wait for another process: seccomp_unotify(2). Returns a
 * descriptor for `crenderer_allow_thread` in that process, or -1 if the kernel cannot do this; threads then start at
 * once. Once every copy of the descriptor is closed, starting a thread fails. */
int crenderer_report_threads(void);

/* Lets the thread start that made `listener` readable. Returns 0 or a negative errno. Does not block on a readable
 * listener whose process is alive. */
int crenderer_allow_thread(int listener);

/* Leaves the process nothing but reading and writing open descriptors, anonymous memory that is never executed, threads,
 * time and its end. Every other system call fails with EPERM: seccomp(2), by libseccomp. Returns 0 or an errno. */
int crenderer_confine(void);

#endif
