/* The bystander of P12: sends few requests at a constant rate and records their latencies.
 *
 *     bystander SOCKET UID LEAVER SECONDS TIMEOUT FIRST
 *
 * As UID, whose user `me` has the image `bob`: hits, misses of images numbered from FIRST, logins and logouts. As
 * root: the logout of all users of LEAVER, after a login of LEAVER. Each operation waits for its reply before it is
 * repeated. A request without a reply TIMEOUT seconds after the end is an error. Prints one line for each operation:
 * its name, the number of errors, and all latencies in microseconds. A line that begins with '!' has the first error
 * of an operation. */
#define _GNU_SOURCE
#include "client.h"
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SAMPLES = 1 << 16, MOST_CONNECTIONS = 5, WORDS = 4 };

struct operation {
    const char *name;
    const char *words[WORDS];
    size_t count;
    unsigned errors;
    char reason[160];
    unsigned *samples;
    size_t taken;
};

/* Operations that are executed in turn. */
struct round {
    struct operation *steps[2];
    int connections[2];
    size_t length, next;
    double every, due, since;
    bool is_waiting_for_reply, has_ended;
};

static char number[COUNTER_DIGITS + 1], leaver[16];
static struct operation hit = {.name = "hit", .words = {"GET", "me", "bob"}, .count = 3},
                        miss = {.name = "miss", .words = {"GET", "me", number}, .count = 3},
                        in = {.name = "login", .words = {"LOGIN", "other"}, .count = 2},
                        out = {.name = "logout", .words = {"LOGOUT", "other"}, .count = 2},
                        arrival = {.name = "arrival", .words = {"LOGIN", "me"}, .count = 2},
                        hook = {.name = "hook", .words = {"LOGOUT", "*", "UID", leaver}, .count = 4};
static struct operation *const operations[] = {&hit, &miss, &in, &out, &arrival, &hook};
static unsigned long next_number;

static struct pollfd polled[MOST_CONNECTIONS];
static struct replies replies[MOST_CONNECTIONS];
/* Connections 0 to 2 belong to UID, 3 to LEAVER, 4 to root. */
static struct round rounds[] = {
    {.steps = {&hit}, .connections = {0}, .length = 1, .every = 1 / 200.0},
    {.steps = {&miss}, .connections = {1}, .length = 1, .every = 1 / 50.0},
    {.steps = {&in, &out}, .connections = {2, 2}, .length = 2, .every = 1 / 50.0},
    {.steps = {&arrival, &hook}, .connections = {3, 4}, .length = 2, .every = 1 / 50.0},
};
enum { ROUNDS = sizeof rounds / sizeof *rounds };

static void note(struct operation *operation, double seconds, const char *error) {
    if (operation->taken < MOST_SAMPLES) operation->samples[operation->taken++] = (unsigned)(seconds * 1e6);
    if (error == NULL) return;
    if (operation->errors++ == 0) snprintf(operation->reason, sizeof operation->reason, "%s", error);
}

static void send_request(struct round *round) {
    struct operation *operation = round->steps[round->next];
    if (operation == &miss) snprintf(number, sizeof number, "%0*lu", COUNTER_DIGITS, next_number++);
    char request[256];
    size_t length = write_request(request, operation->words, operation->count);
    round->since = now();
    round->is_waiting_for_reply = true;
    /* A request fits into the socket's buffer; a closed connection is detected by reading. */
    send(polled[round->connections[round->next]].fd, request, length, MSG_NOSIGNAL);
}

static void answered(struct round *round, double at, const char *error) {
    note(round->steps[round->next], at - round->since, error);
    round->is_waiting_for_reply = false;
    round->next = (round->next + 1) % round->length;
    round->due += round->every;
    if (round->due < at) round->due = at;
}

static void receive(struct round *round) {
    int connection = round->connections[round->next];
    static char input[1 << 16];
    struct replies *state = &replies[connection];
    unsigned long before = state->done;
    ssize_t count;
    while ((count = recv(polled[connection].fd, input, sizeof input, 0)) > 0)
        count_replies(state, input, (size_t)count);
    double at = now();
    if (count == 0 || errno != EAGAIN) {
        answered(round, at, count == 0 ? "the connection was closed" : strerror(errno));
        round->has_ended = true;
        polled[connection].fd = -1;
    } else if (state->done > before) {
        bool is_nothing = strcmp(state->head, "$-1") == 0;
        answered(round, at, state->head[0] == '-' ? state->head : is_nothing ? "no image" : NULL);
    }
}

int main(int argc, char **argv) {
    if (argc != 7) errx(2, "usage: bystander SOCKET UID LEAVER SECONDS TIMEOUT FIRST");
    uid_t uid = (uid_t)strtoul(argv[2], NULL, 10), other = (uid_t)strtoul(argv[3], NULL, 10);
    snprintf(leaver, sizeof leaver, "%u", other);
    double seconds = strtod(argv[4], NULL), timeout_after = strtod(argv[5], NULL);
    next_number = strtoul(argv[6], NULL, 10);
    prctl(PR_SET_TIMERSLACK, 1000UL);
    for (size_t index = 0; index < sizeof operations / sizeof *operations; index++) {
        operations[index]->samples = calloc(MOST_SAMPLES, sizeof(unsigned));
        if (operations[index]->samples == NULL) err(1, "calloc");
    }
    const uid_t uids[MOST_CONNECTIONS] = {uid, uid, uid, other, 0};
    for (int index = 0; index < MOST_CONNECTIONS; index++) {
        polled[index] = (struct pollfd){.fd = connect_as(uids[index], argv[1]), .events = POLLIN};
        if (polled[index].fd < 0) err(1, "connect to %s", argv[1]);
    }
    double begin = now(), over = begin + seconds, last = over + timeout_after;
    /* Operations start at different times. */
    for (size_t index = 0; index < ROUNDS; index++) rounds[index].due = begin + (double)(index + 1) * 0.0013;
    for (;;) {
        double at = now(), next = last;
        bool is_waiting = false;
        for (size_t index = 0; index < ROUNDS; index++) {
            struct round *round = &rounds[index];
            if (round->has_ended) continue;
            if (!round->is_waiting_for_reply && at >= round->due && at < over) send_request(round);
            if (round->is_waiting_for_reply) is_waiting = true;
            else if (at < over && round->due < next) next = round->due;
        }
        if (at >= over && (!is_waiting || at >= last)) break;
        double pause = next > at ? next - at : 0;
        struct timespec timeout = {(time_t)pause, (long)((pause - (double)(time_t)pause) * 1e9)};
        if (ppoll(polled, MOST_CONNECTIONS, &timeout, NULL) <= 0) continue;
        for (size_t index = 0; index < ROUNDS; index++) {
            struct round *round = &rounds[index];
            if (round->is_waiting_for_reply && polled[round->connections[round->next]].revents != 0) receive(round);
        }
    }
    double end = now();
    for (size_t index = 0; index < ROUNDS; index++)
        if (rounds[index].is_waiting_for_reply)
            note(rounds[index].steps[rounds[index].next], end - rounds[index].since, "no reply");
    for (size_t index = 0; index < sizeof operations / sizeof *operations; index++) {
        struct operation *operation = operations[index];
        if (operation->errors > 0) printf("! %s: %s\n", operation->name, operation->reason);
        printf("%s %u", operation->name, operation->errors);
        for (size_t sample = 0; sample < operation->taken; sample++) printf(" %u", operation->samples[sample]);
        printf("\n");
    }
    return 0;
}
