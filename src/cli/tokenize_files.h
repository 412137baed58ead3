/* The texts of `sluice tokenize`: files and folders as one row of records. */
#ifndef SL_CLI_TOKENIZE_FILES_H
#define SL_CLI_TOKENIZE_FILES_H

#include "data/records.h"

typedef struct sl_cli_files {
    sl_region *region;
    const char **paths;
    int64_t count, capacity, next; /* the file to open next */
    int64_t bytes, skipped;        /* sizes of all; entries of folders that are no text */
    sl_records *open;              /* or NULL */
    sl_record_counts counts;
    bool chats; /* these are wanted, and nothing else */
} sl_cli_files;

/* Walks "a,b,c" in byte order. Zero-initialise; close it whatever happens. */
sl_status sl_cli_files_find(sl_cli_files *files, const char *paths);
/* The next record of the next file that has one. The caller frees it. */
sl_status sl_cli_files_next(sl_cli_files *files, sl_record *record, bool *more);
void sl_cli_files_close(sl_cli_files *files);

#endif
