/* `sluice bench` and `sluice system` as a user meets them: the list, help, mistakes, the shape of the JSON, files. What
 * the figures are is tested in tests/bench. */
#include <sys/wait.h>

#include "bench/bench.h"
#include "core/file.h"
#include "core/json.h"
#include "test.h"

static char out[1 << 18], err[1 << 14];

static void read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "rb");
    REQUIRE(file);
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
}

static int sluice(const char *args)
{
    char command[2048];
    snprintf(command, sizeof command, "cd '%s' && '%s' %s >out.log 2>err.log", test_dir(), SL_BINARY, args);
    int status = system(command);
    read_text(test_path("out.log"), out, sizeof out);
    read_text(test_path("err.log"), err, sizeof err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void refused(const char *args, const char *part)
{
    CHECK_MSG(sluice(args) == 2, "sluice %s is not refused: %s", args, err);
    CHECK_MSG(strncmp(err, "sluice: ", 8) == 0 && strstr(err, part), "sluice %s: \"%s\" without \"%s\"", args, err,
              part);
}

TEST(list_and_help)
{
    int64_t count;
    const sl_bench_def *const *defs = sl_bench_defs(&count);
    CHECK(count >= 6);
    CHECK_I64(sluice("bench --help"), 0);
    for (int64_t i = 0; i < count; i++)
        CHECK_CONTAINS(out, defs[i]->name);
    CHECK_I64(sluice("bench"), 2);
    for (int64_t i = 0; i < count; i++) {
        char args[64], flag[64];
        snprintf(args, sizeof args, "bench %s --help", defs[i]->name);
        CHECK_I64(sluice(args), 0);
        sl_option *table;
        int64_t n;
        CHECK_OK(sl_bench_options(defs[i], &table, &n));
        for (int64_t o = 0; o < n; o++) {
            snprintf(flag, sizeof flag, "--%s", table[o].name);
            CHECK_MSG(strstr(out, flag) != NULL, "%s does not tell of %s", args, flag);
        }
        for (const char *line = out; *line; line += strcspn(line, "\n") + 1)
            CHECK_MSG(strcspn(line, "\n") <= 80, "%s: a line of %zu columns", args, strcspn(line, "\n"));
        sl_free(table);
    }
    CHECK_I64(sluice("system --help"), 0);
    CHECK_CONTAINS(out, "--probe");
}

TEST(mistakes)
{
    refused("bench nothing", "there is no bench \"nothing\"");
    refused("bench flosp", "there is no bench \"flosp\": did you mean \"flops\"?");
    refused("bench flops --sides x", "--sides");
    refused("bench flops --steps 0", "--steps");
    refused("bench lm --device tpu", "there is no device \"tpu\"");
    refused("bench lm --quick --parts foo", "--parts: there is no \"foo\"; use sizes, times, warmup, profile");
    refused("bench lm --quick --parts ,", "--parts is empty: use sizes");
    refused("bench attention --quick --parts grid,foo",
            "--parts: there is no \"foo\"; use grid, long, tiles, leaderboard");
    refused("bench ops --quick --ops nosuchop", "--ops: no op's name contains \"nosuchop\"");
    refused("bench ops --quick --ops ,", "--ops is empty");
    refused("system --threads 5000", "--threads");
    refused("system --what", "--what");
}

/* Told before anything is measured, and nothing is left behind. */
TEST(files_that_cannot_be_written)
{
    static const char *const commands[] = {"bench lm --out nodir/a.json", "system --out nodir/a.json"};
    for (int64_t i = 0; i < SL_COUNT(commands); i++) {
        CHECK_I64(sluice(commands[i]), 1);
        CHECK_STR(out, "");
        CHECK_STR(err, "sluice: cannot write nodir/a.json: no such file or folder; check the path\n");
    }
    CHECK_I64(sluice("bench lm --out ."), 1);
    CHECK_STR(err, "sluice: cannot write .: it is a folder, not a file\n");
    refused("bench flops --steps 0 --out kept.json", "--steps");
    CHECK(!sl_file_exists(test_path("kept.json")) && !sl_file_exists(test_path("kept.json.tmp")));
    refused("system --disk nodir", "--disk nodir is no folder: name one with free space, or give --disk none");
}

/* Every table: columns with name and unit, and in each row exactly the columns. */
static void check_table(const sl_json *table)
{
    const sl_json *columns = sl_json_get(table, "columns"), *rows = sl_json_get(table, "rows");
    REQUIRE(columns && columns->kind == SL_JSON_ARRAY && rows && rows->kind == SL_JSON_ARRAY);
    for (const sl_json *c = columns->child; c; c = c->next)
        CHECK(sl_json_get(c, "name") && sl_json_get(c, "unit"));
    for (const sl_json *row = rows->child; row; row = row->next) {
        CHECK_I64(row->count, columns->count);
        for (const sl_json *c = columns->child; c; c = c->next)
            CHECK(sl_json_get(row, sl_json_get(c, "name")->string) != NULL);
    }
}

static void check_object(const char *text, const char *kind, const char *name)
{
    sl_region *region;
    const sl_json *root;
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_json_parse(region, "object", text, strlen(text), &root));
    CHECK_STR(sl_json_get(root, "kind")->string, kind);
    CHECK_STR(sl_json_get(root, "name")->string, name);
    CHECK(sl_json_get(root, "machine") && sl_json_get(sl_json_get(root, "machine"), "cpu"));
    const sl_json *tables = sl_json_get(root, "tables");
    if (!tables)
        check_table(root);
    for (const sl_json *table = tables ? tables->child : NULL; table; table = table->next) {
        CHECK(sl_json_get(table, "name") != NULL);
        check_table(table);
    }
    sl_region_destroy(region);
}

TEST(objects)
{
    static char file[1 << 18];
    CHECK_I64(sluice("bench flops --quick --json --out flops.json"), 0);
    check_object(out, "bench", "flops");
    read_text(test_path("flops.json"), file, sizeof file);
    CHECK_STR(file, out);
    CHECK_I64(sluice("bench ops --quick --ops rmsnorm --device cpu --json"), 0); /* a single table */
    check_object(out, "bench", "ops");
    CHECK_I64(sluice("system --probe --json --device cpu"), 0);
    check_object(out, "system", "system");
    CHECK_I64(sluice("bench flops --quick"), 0);
    CHECK_CONTAINS(out, "crossover");
    CHECK(!strstr(out, "█")); /* no bars into a file */
}

/* The same again is accepted and its times compared; a baseline with another loss, and one of another bench, are not.
 */
TEST(baseline)
{
#define LM "bench lm --quick --device cpu --contexts 32 --precisions f32 --parts times --steps 1 "
    static char file[1 << 16];
    CHECK_I64(sluice(LM "--out first.json"), 0);
    CHECK_I64(sluice(LM "--baseline first.json --json"), 0);
    CHECK_CONTAINS(out, "against_baseline");
    CHECK_CONTAINS(out, "1 rows were held against the baseline");
    check_object(out, "bench", "lm");
    read_text(test_path("first.json"), file, sizeof file);
    char *loss = strstr(file, "\"loss\":");
    loss = loss ? strstr(loss + 1, "\"loss\":5.") : NULL; /* behind the column's name: the row's value */
    if (!loss)
        loss = strstr(file, "\"loss\":5.");
    REQUIRE(loss != NULL);
    loss[strlen("\"loss\":")] = '6';
    CHECK_OK(sl_file_write_atomic(test_path("other.json"), file, strlen(file)));
    CHECK_I64(sluice(LM "--baseline other.json --json"), 1);
    CHECK_CONTAINS(out, "no speed is reported, because its loss is");
    CHECK_CONTAINS(out, "\"step_ms\":null");
    CHECK_CONTAINS(err, "does not match the baseline");
    CHECK_I64(sluice("bench flops --quick --out flops.json"), 0);
    refused(LM "--baseline flops.json", "holds no results of");
    CHECK_I64(sluice(LM "--baseline missing.json"), 1);
#undef LM
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(list_and_help);
    RUN(mistakes);
    RUN(files_that_cannot_be_written);
    RUN(objects);
    RUN(baseline);
    return test_end();
}
