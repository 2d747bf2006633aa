/* Simulates many relays and a publisher of logouts, for fleet/tools/fleet-scale.
 *
 *     relays PORT STREAM INCARNATION RELAYS HEARTBEAT RATE SECONDS
 *
 * Each relay has a connection and sends what fleet/Sources/Fleet/Stream/FleetStream.swift sends, in the same order and
 * the same number of writes. The work of daemons is not simulated. Prints "ready" when all relays wait for entries.
 * After a line on standard input, publishes RATE logouts per second for SECONDS, or only waits if RATE is 0. When every
 * relay has acknowledged all of them, prints one line of JSON. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST_ENTRIES = 100, HISTOGRAM = 1000000 };

enum stage { HELLO, ROLE, READ, ACKNOWLEDGE, WAIT };

struct relay {
    int fd;
    enum stage stage;
    unsigned owed; /* Pending replies of this stage. */
    char *in;
    size_t have, room;
    char position[64], time[24];
    long read, acknowledged; /* Numbers of entries. */
    int has_more;
};

static struct relay *relays;
static long count, waiting;
static const char *stream, *incarnation, *heartbeat;
static int readable;

/* For each entry: the times when it was sent and when the last relay acknowledged it, and the number that did. */
static double *sent, *done;
static long *acknowledged, published, finished;
/* Times from XADD to the acknowledgements, in tenths of milliseconds. */
static unsigned *histogram;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int connect_to(int port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((unsigned short)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) err(1, "connect to port %d", port);
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 || fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
        err(1, "socket");
    return fd;
}

static size_t frame(char *out, const char *const *words) {
    size_t number = 0, length;
    while (words[number]) number++;
    length = (size_t)sprintf(out, "*%zu\r\n", number);
    for (size_t index = 0; index < number; index++)
        length += (size_t)sprintf(out + length, "$%zu\r\n%s\r\n", strlen(words[index]), words[index]);
    return length;
}

#define COMMAND(...) length += frame(out + length, (const char *const[]){__VA_ARGS__, NULL}), (*number)++

/* Writes the requests of the relay's stage. */
static size_t requests(const struct relay *relay, char *out, unsigned *number) {
    char behind[72], key[200], host[48], state[200], name[200];
    size_t length = 0;
    *number = 0;
    snprintf(behind, sizeof behind, "(%s", relay->position);
    snprintf(key, sizeof key, "%s:hosts", stream);
    snprintf(host, sizeof host, "host-%05ld.example.org", (long)(relay - relays));
    switch (relay->stage) {
    case HELLO: COMMAND("HELLO", "3", "SETNAME", "thumbcached-relay"); break;
    case ROLE: COMMAND("ROLE"); break;
    case READ:
        snprintf(name, sizeof name, "%s:incarnation", stream);
        COMMAND("MULTI");
        COMMAND("GET", name);
        COMMAND("XINFO", "STREAM", stream);
        COMMAND("XRANGE", stream, relay->position, relay->position);
        COMMAND("XRANGE", stream, behind, "+", "COUNT", "100");
        COMMAND("HGET", key, host);
        COMMAND("TIME");
        COMMAND("EXEC");
        break;
    case ACKNOWLEDGE:
        snprintf(state, sizeof state, "%s %s %s 0 %08lx", relay->position, relay->time, incarnation,
            (long)(relay - relays));
        COMMAND("HSET", key, host, state);
        break;
    case WAIT: COMMAND("XREAD", "COUNT", "1", "BLOCK", heartbeat, "STREAMS", stream, relay->position); break;
    }
    return length;
}

static void begin(struct relay *relay, enum stage stage) {
    char out[2048];
    waiting += (stage == WAIT) - (relay->stage == WAIT);
    relay->stage = stage;
    size_t length = requests(relay, out, &relay->owed);
    if (write(relay->fd, out, length) != (ssize_t)length) err(1, "write");
}

/* Returns the length of the first RESP value, or 0 if it is incomplete. */
static size_t end_of_value(const char *bytes, size_t have) {
    size_t at = 0;
    for (long owed = 1; owed > 0; owed--) {
        const char *end = at < have ? memchr(bytes + at, '\n', have - at) : NULL;
        if (!end) return 0;
        char kind = bytes[at];
        long number = strtol(bytes + at + 1, NULL, 10);
        at = (size_t)(end - bytes) + 1;
        if (kind == '$' && number >= 0) at += (size_t)number + 2;
        else if (kind == '*' && number > 0) owed += number;
        else if (kind == '%' && number > 0) owed += 2 * number;
        if (at > have) return 0;
    }
    return at;
}

static const char *skip(const char *value, const char *end) {
    return value + end_of_value(value, (size_t)(end - value));
}

static void copy_string(const char *value, char *out, size_t room) {
    size_t length = strtoul(value + 1, NULL, 10);
    if (value[0] != '$' || length >= room) errx(1, "expected a short string: %.20s", value);
    memcpy(out, strchr(value, '\n') + 1, length);
    out[length] = 0;
}

/* Parses the reply of EXEC: the entries after the position, and the time. */
static void read_entries(struct relay *relay, const char *value, const char *end) {
    if (strncmp(value, "*6\r\n", 4) != 0) errx(1, "invalid reply to EXEC: %.40s", value);
    const char *part = skip(skip(skip(value + 4, end), end), end);
    long entries = strtol(part + 1, NULL, 10);
    const char *entry = strchr(part, '\n') + 1;
    for (long number = 0; number < entries; number++) {
        if (number == entries - 1) copy_string(strchr(entry, '\n') + 1, relay->position, sizeof relay->position);
        entry = skip(entry, end);
    }
    relay->read += entries;
    relay->has_more = entries == MOST_ENTRIES;
    /* TIME: seconds and microseconds. */
    char seconds[16], micro[16];
    const char *first = strchr(skip(skip(part, end), end), '\n') + 1;
    copy_string(first, seconds, sizeof seconds);
    copy_string(skip(first, end), micro, sizeof micro);
    snprintf(relay->time, sizeof relay->time, "%lld", atoll(seconds) * 1000 + atoll(micro) / 1000);
}

static void note_acknowledgement(struct relay *relay) {
    double moment = now();
    for (; relay->acknowledged < relay->read; relay->acknowledged++) {
        long entry = relay->acknowledged;
        /* An entry that this program did not publish. */
        if (entry >= published) break;
        double tenths = (moment - sent[entry]) * 1e4;
        histogram[tenths < HISTOGRAM - 1 ? (long)tenths : HISTOGRAM - 1]++;
        if (++acknowledged[entry] == count) {
            done[entry] = moment;
            finished++;
        }
    }
}

/* Starts the next stage after the last reply of a stage. */
static void advance(struct relay *relay, const char *value, const char *end) {
    switch (relay->stage) {
    case HELLO: begin(relay, ROLE); break;
    case ROLE: begin(relay, READ); break;
    case READ:
        read_entries(relay, value, end);
        begin(relay, ACKNOWLEDGE);
        break;
    case ACKNOWLEDGE:
        note_acknowledgement(relay);
        begin(relay, relay->has_more ? READ : WAIT);
        break;
    case WAIT: begin(relay, READ); break;
    }
}

static void receive(struct relay *relay) {
    if (relay->room - relay->have < 4096) {
        relay->room = relay->room ? relay->room * 2 : 8192;
        relay->in = realloc(relay->in, relay->room + 1);
        if (!relay->in) err(1, "memory");
    }
    ssize_t got = read(relay->fd, relay->in + relay->have, relay->room - relay->have);
    if (got <= 0) errx(1, "the server closed a connection");
    relay->have += (size_t)got;
    relay->in[relay->have] = 0;
    size_t at = 0, length;
    while ((length = end_of_value(relay->in + at, relay->have - at)) > 0) {
        const char *value = relay->in + at;
        if (value[0] == '-') errx(1, "error from the server: %.100s", value);
        at += length;
        if (relay->owed == 0) errx(1, "unexpected reply: %.100s", value);
        if (--relay->owed == 0) advance(relay, value, relay->in + at);
    }
    memmove(relay->in, relay->in + at, relay->have - at);
    relay->have -= at;
}

/* Publishes as thumbcachectl fleet and thumbcached-oidc do; entries are kept for a week. */
static void publish(int fd) {
    char out[1024], user[32], oldest[32];
    size_t length = 0;
    unsigned ignored = 0, *number = &ignored;
    snprintf(user, sizeof user, "user-%07ld", random() % 10000000);
    snprintf(oldest, sizeof oldest, "%lld", ((long long)time(NULL) - 604800) * 1000);
    COMMAND("ROLE");
    COMMAND("TIME");
    COMMAND("XADD", stream, "MINID", "~", oldest, "*", "op", "logout", "user", user);
    sent[published++] = now();
    if (write(fd, out, length) != (ssize_t)length) err(1, "write");
}

static void drop_answers(int fd) {
    char bytes[65536];
    ssize_t got;
    while ((got = read(fd, bytes, sizeof bytes)) > 0)
        if (memmem(bytes, (size_t)got, "-ERR", 4)) errx(1, "the server rejected an entry");
}

/* Processes the relays' replies for at most `seconds`. */
static void serve(double seconds) {
    struct epoll_event events[512];
    int milliseconds = seconds <= 0 ? 0 : (int)(seconds * 1e3) + 1;
    int ready = epoll_wait(readable, events, 512, milliseconds);
    for (int index = 0; index < ready; index++) receive(&relays[events[index].data.u32]);
}

static int ascending(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static double of_histogram(double share) {
    unsigned long all = 0, so_far = 0;
    for (long index = 0; index < HISTOGRAM; index++) all += histogram[index];
    for (long index = 0; index < HISTOGRAM; index++)
        if ((so_far += histogram[index]) > (unsigned long)((double)all * share)) return (double)index / 10;
    return 0;
}

static double own_processor_time(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
        + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv) {
    if (argc != 8) errx(2, "relays PORT STREAM INCARNATION RELAYS HEARTBEAT RATE SECONDS");
    int port = atoi(argv[1]);
    (stream = argv[2], incarnation = argv[3], heartbeat = argv[5]);
    count = atol(argv[4]);
    double rate = atof(argv[6]), seconds = atof(argv[7]);
    if (count <= 0 || strlen(stream) > 100 || strlen(incarnation) > 40) errx(2, "an argument is out of bounds");
    size_t most = (size_t)(rate * seconds) + 2;
    relays = calloc((size_t)count, sizeof *relays);
    sent = calloc(most, sizeof *sent);
    done = calloc(most, sizeof *done);
    acknowledged = calloc(most, sizeof *acknowledged);
    histogram = calloc(HISTOGRAM, sizeof *histogram);
    readable = epoll_create1(EPOLL_CLOEXEC);
    if (!relays || !sent || !done || !acknowledged || !histogram || readable < 0) err(1, "memory");
    for (long who = 0; who < count; who++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (unsigned)who};
        relays[who].fd = connect_to(port);
        strcpy(relays[who].position, "0-0");
        if (epoll_ctl(readable, EPOLL_CTL_ADD, relays[who].fd, &event) != 0) err(1, "epoll_ctl");
        begin(&relays[who], HELLO);
    }
    while (waiting < count) serve(1);
    puts("ready");
    fflush(stdout);
    /* Continues to send heartbeats until the caller has read the server's counters. */
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    char line[16];
    while (read(STDIN_FILENO, line, sizeof line) <= 0) serve(0.001);

    int publisher = connect_to(port);
    double began = now(), processor = own_processor_time(), end = began + seconds;
    for (double moment; (moment = now()) < end;) {
        double next = rate > 0 ? began + (double)published / rate : end;
        if (moment >= next) publish(publisher);
        else serve((next < end ? next : end) - moment);
        if (moment >= next) serve(0);
        drop_answers(publisher);
    }
    while (finished < published) {
        serve(0.1);
        drop_answers(publisher);
        if (now() > end + 120) errx(1, "timeout: %ld of %ld entries acknowledged by all relays", finished, published);
    }
    double took = now() - began;
    processor = own_processor_time() - processor;
    for (long entry = 0; entry < published; entry++) done[entry] -= sent[entry];
    qsort(done, (size_t)published, sizeof *done, ascending);
    double p50 = published ? done[published / 2] * 1e3 : 0, p99 = published ? done[published * 99 / 100] * 1e3 : 0;
    printf("{\"entries\": %ld, \"seconds\": %f, \"processor\": %f, \"last_p50\": %.3f, \"last_p99\": %.3f, "
           "\"each_p50\": %.1f, \"each_p99\": %.1f}\n",
        published, took, processor, p50, p99, of_histogram(0.5), of_histogram(0.99));
    return 0;
}
