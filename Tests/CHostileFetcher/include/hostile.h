/* Stands in for somebody who has broken into libcurl, or into libvips.
 *
 * Loaded into thumbcached-fetcher with LD_PRELOAD, it tries everything that a fetcher is not to be able to do, the first
 * time that libcurl is given a transfer, and writes a line on each try to descriptor 2. Loaded into
 * thumbcached-renderer, it does so in a worker that is given a picture, to descriptor 0, which is all it has; the worker
 * then ends.
 *
 *     hostile: open /var/lib/thumbcached: refused (EACCES)
 *     hostile: kill of 4711: DONE
 *     hostile: end
 *
 * The last line stands behind all tries. A transfer then goes on. In any other program it does nothing.
 *
 *     THUMBCACHED_HOSTILE_PATHS=/a:/b       files and directories to read, list and write
 *     THUMBCACHED_HOSTILE_SOCKETS=/c:@d     Unix sockets to connect to; @ stands before the name of an abstract one
 *     THUMBCACHED_HOSTILE_PID=4711          a process to reach, besides its parent
 *
 * A path that does not exist is refused with ENOENT, which proves nothing: the test sees to it that each exists.
 * Nothing of it is in what is installed. */
#ifndef THUMBCACHED_HOSTILE_H
#define THUMBCACHED_HOSTILE_H

/* curl_multi_add_handle(3), whose own header is not needed here: its result is an enumeration. */
int curl_multi_add_handle(void *multi, void *easy);
/* vips_foreign_find_load_buffer, of libvips' API. */
const char *vips_foreign_find_load_buffer(const void *bytes, unsigned long length);

#endif
