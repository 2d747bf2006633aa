/* CRenderer: see include/renderer.h. System calls that Swift does not have. */
#define _GNU_SOURCE

#include "renderer.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

pid_t crenderer_fork(void) { return fork(); }

int crenderer_poll(struct pollfd *waits, size_t count, int seconds, const sigset_t *signals) {
    struct timespec limit = {.tv_sec = seconds};
    return ppoll(waits, count, seconds < 0 ? NULL : &limit, signals);
}

int crenderer_end_with(pid_t parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return -1;
    if (getppid() == parent) return 0;
    /* The parent ended before prctl, so the signal will not come. */
    errno = ESRCH;
    return -1;
}

void crenderer_lower_priority(void) {
    struct sched_param none = {0};
    /* If either call fails, the process keeps the default priority. */
    sched_setscheduler(0, SCHED_BATCH, &none);
    setpriority(PRIO_PROCESS, 0, 10);
}
