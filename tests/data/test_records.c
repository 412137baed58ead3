/* Streams of files, compressed or not, and the records in them. */
#include "core/file.h"
#include "data/records.h"
#include "data/stream.h"
#include "test.h"

#define GOLDEN SL_SOURCE_DIR "/tests/golden/data/"

static void write_text(const char *path, const char *text)
{
    CHECK_OK(sl_file_write_atomic(path, text, strlen(text)));
}

/* A build without the library says so, once. */
static bool can_read(const char *path)
{
    sl_stream *stream = NULL;
    sl_status status = sl_stream_open(path, &stream);
    sl_stream_close(stream);
    if (status == SL_E_UNSUPPORTED)
        CHECK_CONTAINS(sl_error_message(), "install");
    return status == SL_OK;
}

static size_t read_all(const char *path, size_t piece, char *out, size_t capacity)
{
    sl_stream *stream;
    size_t length = 0, got;
    CHECK_OK(sl_stream_open(path, &stream));
    do {
        CHECK_OK(sl_stream_read(stream, out + length, SL_MIN(piece, capacity - length), &got));
        length += got;
    } while (got);
    sl_stream_close(stream);
    return length;
}

TEST(streams_decode)
{
    static const char want[] = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
    const char *const names[] = {GOLDEN "members.jsonl.gz", GOLDEN "frames.jsonl.zst"};
    for (int i = 0; i < 2; i++)
        for (size_t piece = 1; piece < 100 && can_read(names[i]); piece += 6) {
            char out[100] = "";
            CHECK_I64(read_all(names[i], piece, out, sizeof out - 1), sizeof want - 1);
            CHECK_STR(out, want);
        }
    write_text(test_path("plain"), "ab");
    char out[10] = "";
    CHECK_I64(read_all(test_path("plain"), 3, out, 9), 2);
    CHECK_STR(out, "ab");
}

/* Every truncation of a compressed file is an error but the ones between its frames; so is damage. */
TEST(truncated_streams_are_errors)
{
    const char *const names[] = {GOLDEN "members.jsonl.gz", GOLDEN "frames.jsonl.zst"};
    for (int i = 0; i < 2; i++) {
        char *bytes, out[100];
        size_t length, got, fine = 0;
        if (!can_read(names[i]))
            continue;
        CHECK_OK(sl_file_read_all(names[i], 1 << 20, &bytes, &length));
        for (size_t cut = 5; cut <= length; cut++) {
            sl_stream *stream;
            CHECK_OK(sl_file_write_atomic(test_path("cut"), bytes, cut));
            CHECK_OK(sl_stream_open(test_path("cut"), &stream));
            sl_status status = sl_stream_read(stream, out, sizeof out, &got);
            fine += status == SL_OK;
            if (status != SL_OK) {
                CHECK_I64(status, SL_E_FORMAT);
                CHECK_CONTAINS(sl_error_message(), "truncated");
            }
            sl_stream_close(stream);
        }
        CHECK_I64(fine, i == 0 ? 2 : 4); /* ends of frames, skippable ones too */
        sl_free(bytes);
    }
}

TEST(bombs_take_little_memory)
{
    static char out[1 << 16];
    sl_stream *stream;
    size_t got, total = 0;
    if (!can_read(GOLDEN "zeros.zst"))
        return;
    sl_heap_peak_reset();
    size_t before = sl_heap_bytes();
    CHECK_OK(sl_stream_open(GOLDEN "zeros.zst", &stream));
    do {
        CHECK_OK(sl_stream_read(stream, out, sizeof out, &got));
        total += got;
    } while (got);
    sl_stream_close(stream);
    CHECK_I64(total, 64 << 20);
    CHECK(sl_heap_peak_bytes() - before < 1 << 20);
}

/* ---- records ---- */

typedef struct outcome {
    sl_record_counts counts;
    char text[2000]; /* one line a record */
} outcome;

static void put_chat(const sl_record *record, outcome *o)
{
    for (const sl_json *m = record->messages->child; m; m = m->next)
        snprintf(o->text + strlen(o->text), sizeof o->text - strlen(o->text), "%s: %s; ",
                 sl_json_get(m, "role")->string, sl_json_get(m, "content")->string);
    snprintf(o->text + strlen(o->text), sizeof o->text - strlen(o->text), "%s\n", record->last_turn ? "last" : "");
}

static outcome read_records(const char *path, sl_record_format format, const char *field)
{
    outcome o = {0};
    sl_records *records;
    sl_record record;
    bool more = true;
    sl_records_config config = {path, format, field, &o.counts};
    CHECK_OK(sl_records_open(&config, &records));
    for (;;) {
        CHECK_OK(sl_records_next(records, &record, &more));
        if (!more)
            break;
        if (record.kind == SL_RECORD_CHAT)
            put_chat(&record, &o);
        else
            snprintf(o.text + strlen(o.text), sizeof o.text - strlen(o.text), "%.*s%s%s\n", (int) record.length,
                     record.text, record.kind == SL_RECORD_COMPLETION ? " -> " : "",
                     record.completion ? record.completion : "");
        sl_record_free(&record);
    }
    sl_records_close(records);
    return o;
}

static outcome read_lines(const char *text, const char *field)
{
    write_text(test_path("lines.jsonl"), text);
    return read_records(test_path("lines.jsonl"), SL_FORMAT_JSON, field);
}

TEST(fields_say_what_a_record_is)
{
    outcome o =
        read_lines("\xef\xbb\xbf{\"text\": \"a\\nb\", \"id\": 1}\r\n"
                   "\n"
                   "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
                   "\"content\": \"r\"}]}\n"
                   "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", \"value\": "
                   "\"r\"}], \"system\": \"s\"}\n"
                   "{\"prompt\": \"p\", \"completion\": \"c\"}\n"
                   "{\"prompt\": [{\"role\": \"user\", \"content\": \"p\"}], \"completion\": [{\"role\": "
                   "\"assistant\", \"content\": \"c\"}]}\n"
                   "{\"instruction\": \"i\", \"input\": \"n\", \"output\": \"o\"}\n"
                   "{\"instruction\": \"i\", \"input\": \"\", \"output\": \"o\"}\n"
                   "{\"content\": \"code\"}",
                   NULL);
    CHECK_STR(o.text, "a\nb\n"
                      "user: q; assistant: r; \n"
                      "system: s; user: q; assistant: r; \n"
                      "p -> c\n"
                      "user: p; assistant: c; last\n"
                      "user: i\n\nn; assistant: o; \n"
                      "user: i; assistant: o; \n"
                      "code\n");
    CHECK_I64(o.counts.records, 8);
    CHECK_I64(o.counts.kinds[SL_RECORD_TEXT], 2);
    CHECK_I64(o.counts.kinds[SL_RECORD_COMPLETION], 1);
    CHECK_I64(o.counts.kinds[SL_RECORD_CHAT], 5);
}

TEST(what_is_left_out_is_counted)
{
    outcome o = read_lines("{\"text\": \"\"}\n{\"text\": 5}\n{\"text\": \"cut\n[1]\n{\"messages\": []}\n"
                           "{\"conversations\": [{\"from\": \"martian\", \"value\": \"x\"}]}\n{\"text\": \"kept\"}\n",
                           NULL);
    CHECK_STR(o.text, "kept\n");
    CHECK_I64(o.counts.records, 7);
    CHECK_I64(o.counts.skipped[SL_RECORD_EMPTY], 2);
    CHECK_I64(o.counts.skipped[SL_RECORD_NO_FIELD], 3);
    CHECK_I64(o.counts.skipped[SL_RECORD_MALFORMED], 1);
    CHECK_CONTAINS(o.counts.first, "lines.jsonl, record 1: the text is empty");
    o = read_lines("{\"body\": \"b\", \"text\": \"t\"}\n{\"text\": \"u\"}", "body");
    CHECK_STR(o.text, "b\n");
    CHECK_CONTAINS(o.counts.first, "\"body\" is missing");
}

TEST(halves_of_surrogate_pairs_are_replaced)
{
    outcome o = read_lines("{\"text\": \"\\ud83d\\ude00 \\ud83d \\\\ud83d \\ude00 \\ud83d\\ud83d\\ude00 \\ud8\"}\n"
                           "{\"text\": \"\\ud83d\\ude00 \\ud83d \\\\ud83d \\ude00 \\ud83d\\ud83d\\ude00\"}\n",
                           NULL);
    CHECK_STR(o.text, "\xf0\x9f\x98\x80 \xef\xbf\xbd \\ud83d \xef\xbf\xbd \xef\xbf\xbd\xf0\x9f\x98\x80\n");
    CHECK_I64(o.counts.skipped[SL_RECORD_MALFORMED], 1);
    CHECK_I64(o.counts.replaced, 6);
}

TEST(arrays_of_records)
{
    outcome o = read_lines(
        " [\n {\"text\": \"a],[\\\"\"},\n {\"text\": \"b\"} ,{\"instruction\":\"i\",\"output\":\"o\"}\n]\n", NULL);
    CHECK_STR(o.text, "a],[\"\nb\nuser: i; assistant: o; \n");
    CHECK_I64(read_lines("[]", NULL).counts.records, 0);
    sl_record_counts counts = {0};
    sl_records *records;
    sl_record record;
    bool more;
    write_text(test_path("cut.json"), "[{\"text\": \"a\"}, {\"text\"");
    sl_records_config config = {test_path("cut.json"), SL_FORMAT_JSON, NULL, &counts};
    CHECK_OK(sl_records_open(&config, &records));
    CHECK_OK(sl_records_next(records, &record, &more));
    sl_record_free(&record);
    CHECK_FAILS(sl_records_next(records, &record, &more), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "truncated");
    sl_records_close(records);
}

/* Lines longer than any buffer, and one longer than allowed. */
TEST(long_lines)
{
    size_t length = (size_t) 65 << 20, at = 0;
    char *text;
    CHECK_OK(sl_alloc(&text, length + 100, 1));
    memset(text, 'x', length + 90);
    memcpy(text, "{\"text\": \"", 10);
    memcpy(text + 200000, "\"}\n", 3);
    at = 200003;
    memcpy(text + length, "\n{\"text\": \"kept\"}\n", 18);
    CHECK_OK(sl_file_write_atomic(test_path("long.jsonl"), text, length + 18));
    sl_free(text);
    sl_record_counts counts = {0};
    sl_records *records;
    sl_record record;
    bool more;
    sl_records_config config = {test_path("long.jsonl"), SL_FORMAT_JSON, NULL, &counts};
    CHECK_OK(sl_records_open(&config, &records));
    CHECK_OK(sl_records_next(records, &record, &more));
    CHECK(more && record.length == at - 3 - 10);
    sl_record_free(&record);
    CHECK_OK(sl_records_next(records, &record, &more));
    CHECK(more && record.length == 4);
    CHECK_I64(counts.skipped[SL_RECORD_TOO_LONG], 1);
    sl_record_free(&record);
    CHECK_OK(sl_records_next(records, &record, &more));
    CHECK(!more);
    sl_records_close(records);
}

/* 10 MB of brackets, and a million values: refused, in little memory. */
TEST(hostile_lines)
{
    size_t length = 10 << 20;
    char *text;
    CHECK_OK(sl_alloc(&text, length + 1, 1));
    for (int i = 0; i < 2; i++) {
        memset(text, i ? ',' : '[', length);
        text[0] = '{';
        CHECK_OK(sl_file_write_atomic(test_path("hostile.jsonl"), text, length));
        sl_heap_peak_reset();
        size_t before = sl_heap_bytes();
        CHECK_I64(read_records(test_path("hostile.jsonl"), SL_FORMAT_JSON, NULL).counts.skipped[SL_RECORD_TOO_LONG], 1);
        CHECK(sl_heap_peak_bytes() - before < (size_t) 40 << 20);
    }
    sl_free(text);
    CHECK_CONTAINS(
        read_lines("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]"
                   "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
                   NULL)
            .counts.first,
        "nested deeper");
}

/* The pieces of a long text are the text, and end at lines where they can. */
TEST(long_texts_come_in_pieces)
{
    size_t length = 11 << 20, at = 0;
    char *text;
    CHECK_OK(sl_alloc(&text, length + 1, 1));
    for (size_t i = 0; i < length; i++)
        text[i] = i % 1000 == 999 && i < (5 << 20) ? '\n' : (char) ('a' + i % 26);
    CHECK_OK(sl_file_write_atomic(test_path("long.txt"), text, length));
    sl_record_counts counts = {0};
    sl_records *records;
    sl_record record;
    bool more;
    int pieces = 0;
    sl_records_config config = {test_path("long.txt"), SL_FORMAT_TEXT, NULL, &counts};
    CHECK_OK(sl_records_open(&config, &records));
    for (;; pieces++) {
        CHECK_OK(sl_records_next(records, &record, &more));
        if (!more)
            break;
        CHECK(record.continued == (pieces > 0));
        REQUIRE(at + record.length <= length && memcmp(text + at, record.text, record.length) == 0);
        at += record.length;
        CHECK(at == length || at > (4 << 20) || text[at - 1] == '\n');
        sl_record_free(&record);
    }
    sl_records_close(records);
    CHECK_I64(at, length);
    CHECK(pieces >= 3);
    CHECK_I64(counts.kinds[SL_RECORD_TEXT], 1);
    sl_free(text);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(streams_decode);
    RUN(truncated_streams_are_errors);
    RUN(bombs_take_little_memory);
    RUN(fields_say_what_a_record_is);
    RUN(what_is_left_out_is_counted);
    RUN(halves_of_surrogate_pairs_are_replaced);
    RUN(arrays_of_records);
    RUN(long_lines);
    RUN(hostile_lines);
    RUN(long_texts_come_in_pieces);
    return test_end();
}
