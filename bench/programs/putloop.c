/* A lower bound for PUT: opens, writes and renames files of the same size in a loop, in 256 directories.
 *
 *     putloop DIRECTORY IMAGE COUNT NAMES [CLIENTS]
 *
 * Prints the number per second. With CLIENTS, instead prints the 99th percentile, mean and maximum of the latency in
 * milliseconds that as many clients would see, each of which requests a file when its previous one is complete. Omits
 * the first request of each client. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int ascending(const void *left, const void *right)
{
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

/* The loop serves the clients in turn, so a client's next file is complete `clients` files later. */
static void print_latencies(const double *ended, long rounds, long clients)
{
    long all = rounds - clients;
    double *latencies = calloc((size_t)all, sizeof *latencies);
    if (!latencies) fail("calloc");
    for (long i = 0; i < all; i++) latencies[i] = (ended[i + clients] - ended[i]) * 1e3;
    double sum = 0;
    for (long i = 0; i < all; i++) sum += latencies[i];
    qsort(latencies, (size_t)all, sizeof *latencies, ascending);
    printf("%f %f %f\n", latencies[all * 99 / 100], sum / (double)all, latencies[all - 1]);
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int count, char **words)
{
    static char bytes[1 << 20];
    long rounds = count > 3 ? atol(words[3]) : 0, names = count > 4 ? atol(words[4]) : 0;
    long clients = count > 5 ? atol(words[5]) : 0;
    if (count < 5 || count > 6 || rounds < 1 || names < 1 || clients < 0 || clients >= rounds) {
        fprintf(stderr, "putloop DIRECTORY IMAGE COUNT NAMES [CLIENTS]; COUNT must exceed CLIENTS\n");
        return 2;
    }
    int image = open(words[2], O_RDONLY);
    ssize_t length = read(image, bytes, sizeof bytes);
    if (image < 0 || length <= 0) fail(words[2]);
    if (chdir(words[1])) fail(words[1]);
    char name[64];
    int buckets[256];
    for (int bucket = 0; bucket < 256; bucket++) {
        snprintf(name, sizeof name, "%02x", bucket);
        mkdir(name, 0700);
        buckets[bucket] = open(name, O_RDONLY | O_DIRECTORY);
        if (buckets[bucket] < 0) fail(name);
    }
    double *ended = clients > 0 ? calloc((size_t)rounds, sizeof *ended) : NULL;
    if (clients > 0 && !ended) fail("calloc");
    struct timespec now;
    /* Random, like the names of redis-benchmark; otherwise a second run would replace the files of the first. */
    clock_gettime(CLOCK_REALTIME, &now);
    srandom((unsigned)(getpid() ^ now.tv_sec ^ now.tv_nsec));
    double begin = seconds();
    for (long round = 0; round < rounds; round++) {
        long number = random() % names;
        int file = open("temporary", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file < 0 || write(file, bytes, length) != length || close(file)) fail("temporary");
        snprintf(name, sizeof name, "%012ld", number);
        if (renameat(AT_FDCWD, "temporary", buckets[number % 256], name)) fail(name);
        if (ended) ended[round] = seconds();
    }
    if (ended) print_latencies(ended, rounds, clients);
    else printf("%.1f\n", (double)rounds / (seconds() - begin));
    return 0;
}
