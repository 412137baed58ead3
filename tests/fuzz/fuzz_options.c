/* Any bytes as a configuration file, and as a command line with NULs between the arguments. */
#include <string.h>

#include "core/hash.h"
#include "core/options.h"
#include "fuzz/fuzz.h"

const char *const sl_fuzz_dictionary[] = {
    "model", "steps", "lr", "device-mem", "json", "precision",   "--",   "=",   "\n",        "#",    "\"", "{",
    "}",     ":",     ",",  "GiB",        "f32",  "bf16-master", "true", "no-", "unlimited", "512k", NULL};

static const sl_option table[] = {
    {"model", "NAME", SL_OPT_STRING, NULL, "Job", "What to train."},
    {"steps", "N", SL_OPT_I64, "100", "Job", "How long."},
    {"lr", "X", SL_OPT_F64, "3e-4", "Job", "How fast."},
    {"device-mem", "BYTES", SL_OPT_BYTES, "unlimited", "Budgets", "How much."},
    {"json", "", SL_OPT_FLAG, "false", "Output", "How told."},
    {"precision", "f32|bf16|bf16-master", SL_OPT_CHOICE, "bf16-master", "Job", "How exactly."},
};

/* Whatever was accepted can be read, recorded, and the record read back to the same values. */
static void check_record(sl_options *options)
{
    sl_json_writer w = {.depth = 0}, again = {.depth = 0};
    sl_options *copy;
    sl_json_begin_object(&w, NULL);
    sl_options_put(options, &w);
    sl_json_end_object(&w);
    FUZZ_REQUIRE(sl_text_status(&w.text) == SL_OK);
    FUZZ_REQUIRE(sl_options_create(table, SL_COUNT(table), &copy) == SL_OK);
    sl_status status = sl_options_parse_file(copy, sl_fuzz_file((const uint8_t *) w.text.data, w.text.length));
    if (status == SL_OK) {
        sl_json_begin_object(&again, NULL);
        sl_options_put(copy, &again);
        sl_json_end_object(&again);
        FUZZ_REQUIRE(strcmp(w.text.data, again.text.data) == 0);
    } else {
        FUZZ_REQUIRE(status == SL_E_USAGE &&
                     strstr(sl_error_message(), "UTF-8")); /* a text from the command line that is not UTF-8 */
    }
    sl_options_destroy(copy);
    sl_text_free(&again.text);
    sl_text_free(&w.text);
}

static sl_status parse_as_arguments(sl_options *options, const uint8_t *data, size_t size)
{
    char text[4096], *argv[64];
    int argc = 0;
    size = size < sizeof text - 1 ? size : sizeof text - 1;
    memcpy(text, data, size);
    text[size] = 0;
    for (size_t at = 0; at < size && argc < 64; at += strlen(text + at) + 1)
        argv[argc++] = text + at;
    return sl_options_parse_args(options, argc, argv);
}

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    int outcome = 0;
    for (int way = 0; way < 2; way++) {
        sl_options *options;
        FUZZ_REQUIRE(sl_options_create(table, SL_COUNT(table), &options) == SL_OK);
        sl_status status =
            way ? parse_as_arguments(options, data, size) : sl_options_parse_file(options, sl_fuzz_file(data, size));
        FUZZ_REQUIRE(status == SL_OK || sl_error_message()[0]);
        if (status == SL_OK)
            check_record(options);
        for (int64_t i = 0; i < SL_COUNT(table); i++)
            outcome = outcome * 3 + sl_options_is_set(options, table[i].name);
        outcome = outcome * 16 + (int) status;
        outcome &= 0xffffff;
        sl_options_destroy(options);
    }
    FUZZ_REQUIRE(sl_heap_bytes() == 0);
    return outcome;
}
