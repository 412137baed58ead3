/* Files: read with limits, written so that a reader sees the old file or the whole new one, never a part.
 * Every message names the path and says what to do (full disk, no permission, no such file). Fault points inside. */
#ifndef SL_CORE_FILE_H
#define SL_CORE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/mem.h"

/* The whole file, NUL-terminated past its end; refuses more than `limit` bytes. Free with sl_free. */
sl_status sl_file_read_all(const char *path, size_t limit, char **out, size_t *length);
sl_status sl_file_size(const char *path, int64_t *out);
bool sl_file_exists(const char *path);
bool sl_dir_exists(const char *path);
sl_status sl_dir_create(const char *path); /* with its parents; their names are durable */
sl_status sl_dir_remove(const char *path); /* with all it holds; refuses "/" and "" */

/* Random-access reading. Short reads are errors that name the place. */
typedef struct sl_reader sl_reader;
sl_status sl_reader_open(const char *path, sl_reader **reader);
void sl_reader_close(sl_reader *reader);
int64_t sl_reader_size(const sl_reader *reader);
sl_status sl_reader_read(sl_reader *reader, int64_t offset, void *out, size_t bytes);

/* Writing through a small fixed buffer into `path`.tmp; commit = flush, fsync, rename over `path`, fsync the folder.
 * Destroying an uncommitted writer removes the temporary. */
typedef struct sl_writer sl_writer;
sl_status sl_writer_open(const char *path, sl_writer **writer);
sl_status sl_writer_write(sl_writer *writer, const void *bytes, size_t length);
uint64_t sl_writer_checksum(const sl_writer *writer); /* sl_hash64 of all bytes so far */
sl_status sl_writer_commit(sl_writer *writer);        /* still needs destroying */
void sl_writer_destroy(sl_writer *writer);
/* The three in one, for small files. */
sl_status sl_file_write_atomic(const char *path, const void *bytes, size_t length);
/* rename(2) + fsync of the folder: how a finished checkpoint folder takes its name. */
sl_status sl_rename_durable(const char *from, const char *to);
/* Exchanges two names at once, so that there is no moment without `to`. `done` false: the file system cannot do it. */
sl_status sl_exchange_durable(const char *from, const char *to, bool *done);

/* A folder's entries in byte order, without "." and "..". Strings live in `region`. */
sl_status sl_dir_list(sl_region *region, const char *path, const char ***names, int64_t *count);

#endif
