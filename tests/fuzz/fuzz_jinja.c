/* Any bytes as a template: it ends, in bounded memory, with text whose spans cover it, or with one sentence. Where the text comes out,
 * the counted ranges of the chat are ascending and inside it. */
#include <string.h>

#include "core/hash.h"
#include "fuzz/fuzz.h"
#include "text/chat_internal.h"

const char *const sl_fuzz_dictionary[] = {"{{ ",
                                          " }}",
                                          "{% ",
                                          " %}",
                                          "{#",
                                          "#}",
                                          "{%- ",
                                          " -%}",
                                          "for x in ",
                                          "endfor",
                                          "if ",
                                          "elif ",
                                          "else",
                                          "endif",
                                          "set ",
                                          "endset",
                                          "macro m(a)",
                                          "endmacro",
                                          "{{ m(1) }}",
                                          "call m(1)",
                                          "endcall",
                                          "generation",
                                          "endgeneration",
                                          "filter ",
                                          "break",
                                          "continue",
                                          "raw",
                                          "endraw",
                                          "with a=1",
                                          "messages",
                                          "message",
                                          "['role']",
                                          ".content",
                                          "tools",
                                          "loop.last",
                                          "loop.index0",
                                          "namespace(a=1)",
                                          "ns.a",
                                          "|tojson",
                                          "|trim",
                                          "|join(',')",
                                          "|length",
                                          "|list",
                                          "|map(attribute='role')",
                                          "|selectattr('role', 'equalto', 'user')",
                                          "|replace('a', 'b')",
                                          "|default('x')",
                                          "|dictsort",
                                          "|indent",
                                          "|sort",
                                          " is defined",
                                          " is not none",
                                          " is string",
                                          " in ",
                                          " not in ",
                                          " and ",
                                          " or ",
                                          "not ",
                                          " ~ ",
                                          " + ",
                                          " * ",
                                          " ** ",
                                          " // ",
                                          "[::-1]",
                                          "[1:-1]",
                                          ".split('\\n')",
                                          ".strip()",
                                          ".items()",
                                          ".get('x')",
                                          "range(9)",
                                          "raise_exception('x')",
                                          "strftime_now('%d')",
                                          "add_generation_prompt",
                                          "bos_token",
                                          "\\u00e9",
                                          "'",
                                          "\"",
                                          NULL};

static const char chat_json[] =
    "[{\"role\": \"system\", \"content\": \"s \"}, {\"role\": \"user\", \"content\": \"\\u00fc <x>\"},"
    "{\"role\": \"assistant\", \"content\": \"<think>a</think>b\", \"tool_calls\": [{\"id\": \"1\","
    "\"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, null, true]}}}]},"
    "{\"role\": \"tool\", \"content\": \"r\"}, {\"role\": \"assistant\", \"content\": \"\"}]";
static const char tools_json[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"a\": 1}}}]";

static void check_output(const sl_chat *chat, const sl_chat_request *request, const sl_jinja_output *out,
                         sl_region *region)
{
    size_t begin = 0;
    for (int64_t i = 0; i < out->span_count; i++) {
        FUZZ_REQUIRE(out->spans[i].end > begin && out->spans[i].end <= out->length);
        FUZZ_REQUIRE(i == 0 || out->spans[i].mark != out->spans[i - 1].mark);
        begin = out->spans[i].end;
    }
    FUZZ_REQUIRE(begin == out->length && out->text[out->length] == 0);
    const chat_range special = {out->length / 2, out->length / 2 + 1};
    for (int train_on = SL_TRAIN_ON_ALL; train_on <= SL_TRAIN_ON_COMPLETION; train_on++) {
        chat_range *ranges;
        int64_t count;
        if (sl_chat_ranges(chat, request, out, (sl_train_on) train_on, &special, out->length > 1, region, &ranges,
                           &count))
            continue;
        for (int64_t i = 0; i < count; i++)
            FUZZ_REQUIRE(ranges[i].begin < ranges[i].end && ranges[i].end <= out->length &&
                         (i == 0 || ranges[i - 1].end <= ranges[i].begin));
    }
}

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    sl_chat *chat;
    sl_region *region;
    sl_jinja_output out;
    const char *source = (const char *) data;
    if (sl_chat_parse("fuzz", source ? source : "", size, "<s>", "</s>", &chat) != SL_OK) {
        const char *sentence = strrchr(sl_error_message(), ':');
        FUZZ_REQUIRE(sl_heap_bytes() == 0 && sl_error_message()[0]);
        return (int) (sl_hash64(sentence, strlen(sentence), 0) & 0x3fff);
    }
    FUZZ_REQUIRE(sl_region_create(&region) == SL_OK);
    sl_chat_request request = {.add_generation_prompt = size & 1};
    FUZZ_REQUIRE(sl_json_parse(region, "chat", chat_json, sizeof chat_json - 1, &request.messages) == SL_OK);
    FUZZ_REQUIRE(sl_json_parse(region, "tools", tools_json, sizeof tools_json - 1, &request.tools) == SL_OK);
    sl_status status = sl_chat_render_part(chat, &request, INT64_MAX, request.add_generation_prompt, region, &out);
    int outcome = 0x4000;
    if (status == SL_OK) {
        outcome += (int) out.span_count;
        check_output(chat, &request, &out, region);
    } else {
        const char *sentence = strrchr(sl_error_message(), ':');
        FUZZ_REQUIRE(status == SL_E_FORMAT && sentence);
        outcome += (int) (sl_hash64(sentence, SL_MIN(strlen(sentence), (size_t) 30), 0) & 0x3fff);
    }
    sl_region_destroy(region);
    sl_chat_close(chat);
    FUZZ_REQUIRE(sl_heap_bytes() == 0);
    return outcome;
}
