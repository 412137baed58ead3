#include "cli/tokenize_files.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/file.h"
#include "core/text.h"

enum { MAX_DEPTH = 64 };

static bool has_suffix(const char *path, const char *const *list)
{
    size_t length = strlen(path);
    for (; *list; list++) {
        size_t n = strlen(*list);
        if (length > n && strcasecmp(path + length - n, *list) == 0)
            return true;
    }
    return false;
}

static sl_record_format format_of(const char *path)
{
    static const char *const records[] = {".jsonl",     ".ndjson",   ".jsonl.gz", ".jsonl.zst",
                                          ".ndjson.gz", ".json.zst", ".json.gz",  NULL};
    return has_suffix(path, records) ? SL_FORMAT_JSON : SL_FORMAT_TEXT;
}

/* By their names: tables and archives that are no text. */
static bool is_packed(const char *path)
{
    static const char *const packed[] = {
        ".parquet", ".arrow", ".feather", ".npy", ".npz", ".safetensors", ".xz",  ".bz2", ".lz4", ".zip", ".7z",
        ".tar",     ".tgz",   ".bin",     ".pt",  ".png", ".jpg",         ".pdf", ".so",  ".a",   ".o",   NULL};
    return has_suffix(path, packed);
}

static sl_status add(sl_cli_files *files, const char *path)
{
    int64_t bytes;
    SL_TRY(sl_file_size(path, &bytes));
    if (files->count == files->capacity) {
        int64_t capacity = files->capacity * 2 + 16;
        SL_TRY(sl_grow(&files->paths, files->capacity, capacity, sizeof *files->paths));
        files->capacity = capacity;
    }
    SL_TRY(sl_region_strdup(files->region, path, &files->paths[files->count]));
    files->count++;
    files->bytes += bytes;
    return SL_OK;
}

static sl_status walk(sl_cli_files *files, const char *folder, int depth)
{
    const char **names, *path;
    int64_t count;
    if (depth > MAX_DEPTH)
        return sl_fail(SL_E_USAGE, "%s lies more than %d folders deep", folder, MAX_DEPTH);
    SL_TRY(sl_dir_list(files->region, folder, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        SL_TRY(sl_region_printf(files->region, &path, "%s/%s", folder, names[i]));
        if (names[i][0] == '.' || (is_packed(path) && !sl_dir_exists(path)))
            files->skipped++;
        else
            SL_TRY(sl_dir_exists(path) ? walk(files, path, depth + 1) : add(files, path));
    }
    return SL_OK;
}

sl_status sl_cli_files_find(sl_cli_files *files, const char *paths)
{
    char path[1024];
    SL_TRY(sl_region_create(&files->region));
    while (sl_next_item(&paths, path, sizeof path)) {
        if (sl_dir_exists(path)) {
            SL_TRY(walk(files, path, 0));
            continue;
        }
        if (is_packed(path))
            return sl_fail(SL_E_UNSUPPORTED,
                           "%s is no text, by its name: give text, JSON lines, or either as .gz or .zst", path);
        SL_TRY(add(files, path));
    }
    return files->count ? SL_OK : sl_fail(SL_E_USAGE, "--data names no file: give text files or folders of them");
}

static sl_status next_file(sl_cli_files *files)
{
    const char *path = files->paths[files->next++];
    sl_records_config config = {.path = path, .format = format_of(path), .counts = &files->counts};
    return sl_records_open(&config, &files->open);
}

sl_status sl_cli_files_next(sl_cli_files *files, sl_record *record, bool *more)
{
    for (*more = false; !*more;) {
        if (!files->open) {
            if (files->next == files->count)
                return SL_OK;
            SL_TRY(next_file(files));
        }
        SL_TRY(sl_records_next(files->open, record, more));
        if (!*more) {
            sl_records_close(files->open);
            files->open = NULL;
        } else if (files->chats && record->kind != SL_RECORD_CHAT) {
            sl_record_free(record);
            return sl_fail(SL_E_UNSUPPORTED, "%s holds records that are no chats: leave out --chat",
                           files->paths[files->next - 1]);
        } else if (!files->chats && record->kind == SL_RECORD_CHAT) {
            sl_record_free(record);
            return sl_fail(SL_E_UNSUPPORTED,
                           "%s holds chats, which a model's template turns into text: give the file to `sluice train "
                           "--data` as it is, or look at it with --chat assistant",
                           files->paths[files->next - 1]);
        }
    }
    return SL_OK;
}

void sl_cli_files_close(sl_cli_files *files)
{
    sl_records_close(files->open);
    sl_free(files->paths);
    sl_region_destroy(files->region);
}
