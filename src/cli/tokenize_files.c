#include "cli/tokenize_files.h"

sl_status sl_cli_files_find(sl_cli_files *files, const sl_options *options)
{
    sl_corpus_config config = {.paths = sl_options_string(options, "data"),
                               .vocab = INT32_MAX,
                               .document_token = -1,
                               .records = true,
                               .tokenize = true};
    const char *format = sl_options_string(options, "data-format");
    files->field = sl_options_string(options, "data-field");
    if (format && (!sl_data_format_find(format, &config.format) || config.format == SL_DATA_BYTES ||
                   config.format == SL_DATA_SHARDS))
        return sl_fail(SL_E_USAGE, "--data-format %s: choose auto, text, jsonl or parquet", format);
    SL_TRY(sl_corpus_open(&config, &files->corpus));
    if (!sl_corpus_holds_records(files->corpus))
        return sl_fail(SL_E_USAGE, "%s holds tokens already: give text or records", config.paths);
    const sl_corpus_contents *contents = sl_corpus_contents_of(files->corpus);
    files->count = sl_corpus_file_count(contents);
    files->bytes = sl_corpus_file_bytes(files->corpus);
    for (int i = 0; i < SL_SKIP_COUNT; i++)
        files->skipped += contents->skipped[i];
    return SL_OK;
}

sl_status sl_cli_files_next(sl_cli_files *files, sl_record *record, bool *more)
{
    for (*more = false; !*more;) {
        if (!files->open) {
            if (files->next == files->count)
                return SL_OK;
            SL_TRY(sl_corpus_open_records(files->corpus, files->next++, files->field, &files->counts, &files->open));
        }
        SL_TRY(sl_records_next(files->open, record, more));
        if (!*more) {
            sl_records_close(files->open);
            files->open = NULL;
        } else if (files->chats && record->kind != SL_RECORD_CHAT) {
            sl_record_free(record);
            return sl_fail(SL_E_UNSUPPORTED, "%s holds records that are no chats: leave out --chat",
                           sl_corpus_path(files->corpus, files->next - 1));
        } else if (!files->chats && record->kind == SL_RECORD_CHAT) {
            sl_record_free(record);
            return sl_fail(SL_E_UNSUPPORTED,
                           "%s holds chats, which a model's template turns into text: give the file to `sluice train "
                           "--data` as it is, or look at it with --chat assistant",
                           sl_corpus_path(files->corpus, files->next - 1));
        }
    }
    return SL_OK;
}

void sl_cli_files_close(sl_cli_files *files)
{
    sl_records_close(files->open);
    sl_corpus_close(files->corpus);
}
