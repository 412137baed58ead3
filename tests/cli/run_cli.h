/* Runs the built program in the test's own folder, and looks at what it printed. */
#ifndef SL_TESTS_RUN_CLI_H
#define SL_TESTS_RUN_CLI_H

#include <sys/wait.h>

#include "core/file.h"
#include "core/json.h"
#include "test.h"

/* Two threads on any machine: each one more takes its workspace of the budgets below. */
#define JOB "--model byte-test --seqlen 32 --tokens-per-step 64 --costs roofline --threads 2 "
#define TRAIN "train " JOB "--data text.txt "

static char out[1 << 16], err[1 << 16];

static inline void read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "rb");
    REQUIRE(file);
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
}

/* `sluice ARGS` in the test's folder; its exit code, with what it printed in `out` and `err`. */
static inline int sluice_with(const char *before, const char *args)
{
    char command[4096];
    snprintf(command, sizeof command, "cd '%s' && %s '%s' %s >out.log 2>err.log", test_dir(), before, SL_BINARY, args);
    int status = system(command);
    read_text(test_path("out.log"), out, sizeof out);
    read_text(test_path("err.log"), err, sizeof err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline int sluice(const char *args)
{
    return sluice_with("", args);
}

static inline void write_text(const char *name, const char *text)
{
    CHECK_OK(sl_file_write_atomic(test_path(name), text, strlen(text)));
}

/* The code, and nothing on stderr but one line that begins with "sluice: " and contains `part`. */
static inline void check_refused(int got, int code, const char *args, const char *part)
{
    const char *end = strchr(err, '\n');
    CHECK_MSG(got == code, "sluice %s: exit code %d, not %d: %s", args, got, code, err);
    CHECK_MSG(strncmp(err, "sluice: ", 8) == 0 && end && !end[1], "sluice %s: not one sentence: %s", args, err);
    CHECK_MSG(strstr(err, part) != NULL, "sluice %s: \"%s\" without \"%s\"", args, err, part);
}

static inline void refused(int code, const char *args, const char *part)
{
    check_refused(sluice(args), code, args, part);
}

/* The last line of stdout; the tree lives until the next call. */
static inline const sl_json *last_line(void)
{
    static sl_region *region;
    const sl_json *root = NULL;
    sl_region_destroy(region);
    region = NULL;
    CHECK_OK(sl_region_create(&region));
    char *end = out + strlen(out);
    REQUIRE(end > out && end[-1] == '\n');
    *--end = 0;
    char *line = strrchr(out, '\n');
    line = line ? line + 1 : out;
    CHECK_OK(sl_json_parse(region, "stdout", line, strlen(line), &root));
    REQUIRE(root->kind == SL_JSON_OBJECT);
    return root;
}

static inline void check_keys(const sl_json *object, const char *const *keys, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        CHECK_MSG(sl_json_get(object, keys[i]) != NULL, "the object has no \"%s\"", keys[i]);
}

/* The data, and a folder of costs of the test's own. */
static inline void cli_begin(void)
{
    static char text[20000];
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = "the quick brown fox jumps over the lazy dog\n"[(i * i / 7 + i) % 44];
    write_text("text.txt", text);
    setenv("XDG_CACHE_HOME", test_path("cache"), 1);
}

#endif
