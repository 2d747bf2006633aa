/* Simulates an attacker who controls libcurl or libvips.
 *
 * Loaded into thumbcached-fetcher with LD_PRELOAD, it attempts everything that a fetcher must not be able to do when
 * the first transfer is added to libcurl, and writes a line for each attempt to descriptor 2. Loaded into
 * thumbcached-renderer, it does so in a worker that receives an image, writes to descriptor 0, the only one, and exits.
 *
 *     hostile: open /var/lib/thumbcached: refused (EACCES)
 *     hostile: kill of 4711: DONE
 *     hostile: end
 *
 * The last line follows all attempts; a transfer then continues. In other programs the library does nothing.
 *
 *     THUMBCACHED_HOSTILE_PATHS=/a:/b       files and directories to read, list and write
 *     THUMBCACHED_HOSTILE_SOCKETS=/c:@d     Unix sockets to connect to; @ precedes an abstract name
 *     THUMBCACHED_HOSTILE_PID=4711          a process to attack in addition to the parent
 *     THUMBCACHED_HOSTILE_THREADS=1000      starts as many threads in a worker instead
 *
 * The tests pass existing paths only: ENOENT for a missing one would prove nothing. The library is not installed. */
#ifndef THUMBCACHED_HOSTILE_H
#define THUMBCACHED_HOSTILE_H

/* curl_multi_add_handle(3), declared without libcurl's header. Its result is an enumeration. */
int curl_multi_add_handle(void *multi, void *easy);
/* vips_foreign_find_load_buffer of libvips. */
const char *vips_foreign_find_load_buffer(const void *bytes, unsigned long length);

#endif
