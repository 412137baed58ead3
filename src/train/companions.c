/*
 * Nothing is kept in memory (a tokenizer may have 30 MB, and the host budget is hard): each checkpoint copies anew. Where the
 * source has gone in the meantime, the checkpoint before has a copy.
 */
#include "train/companions.h"

#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "core/log.h"

/* What transformers, vLLM and llama.cpp's converter look for beside the weights. */
static const char *const names[] = {"tokenizer.json",
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "added_tokens.json",
                                    "tokenizer.model",
                                    "vocab.json",
                                    "merges.txt",
                                    "chat_template.jinja",
                                    "chat_template.json",
                                    "generation_config.json",
                                    "vocab.txt",
                                    "tekken.json",
                                    "tiktoken.model",
                                    "qwen.tiktoken",
                                    "spiece.model",
                                    "sentencepiece.bpe.model",
                                    "preprocessor_config.json",
                                    "processor_config.json"};
static const char template_folder[] = "additional_chat_templates"; /* one file NAME.jinja for each */

enum { LARGEST_FILE = 256 << 20, MAX_SOURCES = 3, MAX_TEMPLATES = 64 };

typedef struct sources {
    char folder[MAX_SOURCES][1100];
    int count;
} sources;

/* Folders in which to look, "" where there is none. A file's is the part before its last slash. */
static void list_sources(const sl_setup *setup, const char *before, sources *s)
{
    char from[SL_MODEL_PATH_BYTES] = "";
    if (setup->init_from && sl_model_locate(setup->init_from, from) != SL_OK)
        from[0] = 0; /* gone from the cache since */
    const char *slash = strrchr(from, '/');
    s->count = MAX_SOURCES;
    snprintf(s->folder[0], sizeof s->folder[0], "%s", setup->model_folder);
    if (!from[0] || sl_dir_exists(from))
        snprintf(s->folder[1], sizeof s->folder[1], "%s", from);
    else
        snprintf(s->folder[1], sizeof s->folder[1], "%.*s", slash ? (int) (slash - from) + 1 : 1, slash ? from : ".");
    snprintf(s->folder[2], sizeof s->folder[2], "%s", before);
}

static bool find(const sources *s, int i, const char *name, char path[1200])
{
    snprintf(path, 1200, "%s/%s", s->folder[i], name);
    return s->folder[i][0] && sl_file_exists(path);
}

uint32_t sl_companions_present(const sl_setup *setup)
{
    sources s;
    char path[1200];
    uint32_t present = 0;
    list_sources(setup, "", &s);
    for (int64_t n = 0; n < SL_COUNT(names); n++)
        for (int i = 0; i < s.count; i++)
            present |= find(&s, i, names[n], path) ? (uint32_t) 1 << n : 0;
    return present;
}

const char *sl_companion_name(int bit)
{
    return bit >= 0 && bit < SL_COUNT(names) ? names[bit] : NULL;
}

/* *unreadable: the fault is the source's. */
static sl_status copy_bytes(sl_reader *reader, sl_writer *writer, void *buffer, size_t buffer_bytes, bool *unreadable)
{
    int64_t size = sl_reader_size(reader);
    for (int64_t at = 0; at < size;) {
        size_t n = (size_t) SL_MIN(size - at, (int64_t) buffer_bytes);
        sl_status status = sl_reader_read(reader, at, buffer, n);
        *unreadable = status != SL_OK;
        SL_TRY(status);
        SL_TRY(sl_writer_write(writer, buffer, n));
        at += (int64_t) n;
    }
    return sl_writer_commit(writer);
}

static sl_status copy_file(const char *from, const char *to, void *buffer, size_t buffer_bytes, bool *unreadable)
{
    sl_reader *reader = NULL;
    sl_writer *writer = NULL;
    sl_status status = sl_reader_open(from, &reader);
    if (status == SL_OK && sl_reader_size(reader) > LARGEST_FILE)
        status = sl_fail(SL_E_FORMAT, "%s has %lld bytes, more than the %d that such a file may have", from,
                         (long long) sl_reader_size(reader), LARGEST_FILE);
    *unreadable = status != SL_OK && status != SL_E_MEMORY;
    if (status == SL_OK)
        status = sl_writer_open(to, &writer);
    if (status == SL_OK)
        status = copy_bytes(reader, writer, buffer, buffer_bytes, unreadable);
    sl_writer_destroy(writer);
    sl_reader_close(reader);
    return status;
}

/* From the first source that can be read. *copied: one could. */
static sl_status copy_one(const sources *s, const char *name, const char *to, void *buffer, size_t buffer_bytes,
                          bool *copied)
{
    char from[1200];
    *copied = false;
    for (int i = 0; i < s->count && !*copied; i++) {
        bool unreadable = false;
        if (!find(s, i, name, from))
            continue;
        sl_status status = copy_file(from, to, buffer, buffer_bytes, &unreadable);
        if (status != SL_OK && !unreadable)
            return status;
        if (status != SL_OK)
            sl_warn("%s is not copied into the checkpoint: %s", from, sl_error_message());
        *copied = status == SL_OK;
    }
    return SL_OK;
}

static bool is_template(const char *name)
{
    size_t length = strlen(name);
    return name[0] != '.' && length > 6 && length < 128 && strcmp(name + length - 6, ".jinja") == 0;
}

static sl_status copy_template_files(const sources *s, const char *const *files, int64_t count, const char *folder,
                                     void *buffer, size_t buffer_bytes)
{
    int copies = 0;
    for (int64_t i = 0; i < count && copies < MAX_TEMPLATES; i++) {
        char name[200], to[1400];
        bool copied;
        if (!is_template(files[i]))
            continue;
        snprintf(name, sizeof name, "%s/%s", template_folder, files[i]);
        snprintf(to, sizeof to, "%s/%s", folder, template_folder);
        if (!copies++)
            SL_TRY(sl_dir_create(to));
        snprintf(to, sizeof to, "%s/%s", folder, name);
        SL_TRY(copy_one(s, name, to, buffer, buffer_bytes, &copied));
    }
    return SL_OK;
}

/* Those of the first source that has any. */
static sl_status copy_templates(const sources *s, const char *folder, void *buffer, size_t buffer_bytes)
{
    for (int i = 0; i < s->count; i++) {
        char path[1200];
        const char **files;
        int64_t count;
        sl_region *region;
        snprintf(path, sizeof path, "%s/%s", s->folder[i], template_folder);
        if (!s->folder[i][0] || !sl_dir_exists(path))
            continue;
        SL_TRY(sl_region_create(&region));
        sl_status status = sl_dir_list(region, path, &files, &count);
        if (status == SL_OK)
            status = copy_template_files(s, files, count, folder, buffer, buffer_bytes);
        else if (status != SL_E_MEMORY) {
            sl_warn("%s is not copied into the checkpoint: %s", path, sl_error_message());
            status = SL_OK;
        }
        sl_region_destroy(region);
        return status;
    }
    return SL_OK;
}

sl_status sl_companions_copy(const sl_setup *setup, const char *before, const char *folder, void *buffer,
                             size_t buffer_bytes)
{
    sources s;
    list_sources(setup, before, &s);
    for (int64_t n = 0; n < SL_COUNT(names); n++) {
        char to[1200];
        bool copied;
        snprintf(to, sizeof to, "%s/%s", folder, names[n]);
        SL_TRY(copy_one(&s, names[n], to, buffer, buffer_bytes, &copied));
        if (!copied && setup->companions & (uint32_t) 1 << n)
            sl_warn(
                "the checkpoint has no %s: it was beside the model when the run began, and is gone; put it back, or "
                "copy it to the checkpoint",
                names[n]);
    }
    return copy_templates(&s, folder, buffer, buffer_bytes);
}
