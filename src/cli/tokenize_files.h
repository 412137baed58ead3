/* The texts of `sluice tokenize`: the records of files and folders, found and read as training finds and reads them. */
#ifndef SL_CLI_TOKENIZE_FILES_H
#define SL_CLI_TOKENIZE_FILES_H

#include "core/options.h"
#include "data/tokenized.h"

typedef struct sl_cli_files {
    sl_corpus *corpus;
    const char *field;
    int64_t count, next;    /* the file to open next */
    int64_t bytes, skipped; /* sizes of all; entries of folders that are no text */
    sl_records *open;       /* or NULL */
    sl_record_counts counts;
    bool chats; /* these are wanted, and nothing else */
} sl_cli_files;

/* Those of --data, by --data-format and --data-field. Zero-initialise; close it whatever happens. */
sl_status sl_cli_files_find(sl_cli_files *files, const sl_options *options);
/* The next record of the next file that has one. The caller frees it. */
sl_status sl_cli_files_next(sl_cli_files *files, sl_record *record, bool *more);
void sl_cli_files_close(sl_cli_files *files);

#endif
