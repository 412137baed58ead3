/* Parquet files written by pyarrow (tests/golden/make_data.py), rows by row; and files that lie. */
#include "core/file.h"
#include "core/mem.h"
#include "data/records.h"
#include "test.h"

#define GOLDEN SL_SOURCE_DIR "/tests/golden/data/"
enum { ROWS = 250 };

/* The rows of the script. NULL: null. */
static const char *text_of(int i)
{
    static char text[200];
    text[0] = 0;
    for (int k = 0; k < i % 5; k++)
        sprintf(text + strlen(text), "row %d \xc3\xa9 ", i);
    return i % 11 == 10 ? NULL : text;
}

static sl_status open_records(const char *path, const char *field, sl_record_counts *counts, sl_records **records)
{
    *counts = (sl_record_counts){0};
    sl_records_config config = {path, SL_FORMAT_PARQUET, field, counts};
    return sl_records_open(&config, records);
}

static bool is_missing(sl_status status)
{
    return status == SL_E_UNSUPPORTED && strstr(sl_error_message(), "install");
}

static void check_texts(const char *path)
{
    sl_record_counts counts;
    sl_records *records;
    sl_record record;
    bool more;
    int empty = 0, missing = 0;
    CHECK_OK(open_records(path, NULL, &counts, &records));
    for (int i = 0; i < ROWS; i++) {
        const char *want = text_of(i);
        missing += !want;
        empty += want && !want[0];
        if (!want || !want[0])
            continue;
        sl_status status = sl_records_next(records, &record, &more);
        if (i < 2 && is_missing(status)) {
            sl_records_close(records);
            return;
        }
        CHECK_OK(status);
        REQUIRE(more);
        CHECK_STR(record.text, want);
        sl_record_free(&record);
    }
    CHECK_OK(sl_records_next(records, &record, &more));
    CHECK(!more);
    CHECK_I64(counts.records, ROWS);
    CHECK_I64(counts.skipped[SL_RECORD_EMPTY], empty);
    CHECK_I64(counts.skipped[SL_RECORD_NO_FIELD], missing);
    sl_records_close(records);
}

TEST(texts)
{
    check_texts(GOLDEN "plain.parquet");
    check_texts(GOLDEN "snappy.parquet");
    check_texts(GOLDEN "gzip-v2.parquet");
    check_texts(GOLDEN "zstd-delta.parquet");
}

static void check_chats(const char *path)
{
    sl_record_counts counts;
    sl_records *records;
    sl_record record;
    bool more;
    CHECK_OK(open_records(path, NULL, &counts, &records));
    for (int i = 0; i < ROWS; i++) {
        if (i % 7 == 0 || i % 13 == 12)
            continue;
        sl_status status = sl_records_next(records, &record, &more);
        if (i < 2 && is_missing(status)) {
            sl_records_close(records);
            return;
        }
        CHECK_OK(status);
        REQUIRE(more && record.kind == SL_RECORD_CHAT);
        CHECK_I64(record.messages->count, i % 7);
        int k = 0;
        for (const sl_json *m = record.messages->child; m; m = m->next, k++) {
            char want[40];
            const sl_json *content = sl_json_get(m, "content");
            snprintf(want, sizeof want, "m %d %d", i, k);
            CHECK_STR(sl_json_get(m, "role")->string, k % 2 ? "assistant" : "user");
            CHECK((content == NULL) == ((i + k) % 9 == 8));
            if (content)
                CHECK_STR(content->string, want);
        }
        sl_record_free(&record);
    }
    CHECK_OK(sl_records_next(records, &record, &more));
    CHECK(!more);
    CHECK_I64(counts.skipped[SL_RECORD_EMPTY], ROWS - counts.kinds[SL_RECORD_CHAT]);
    sl_records_close(records);
}

TEST(chats)
{
    check_chats(GOLDEN "chats.parquet");
    check_chats(GOLDEN "chats-v2.parquet");
}

/* A batch of records is encoded when the file that they are from may be closed. */
TEST(records_outlive_their_file)
{
    sl_record_counts counts;
    sl_records *records;
    sl_record record;
    bool more;
    CHECK_OK(open_records(GOLDEN "chats-v2.parquet", NULL, &counts, &records));
    sl_status status = sl_records_next(records, &record, &more);
    sl_records_close(records);
    if (is_missing(status))
        return;
    CHECK_OK(status);
    char *over; /* where the reader's memory was */
    CHECK_OK(sl_alloc(&over, 1 << 16, 1));
    memset(over, 'x', 1 << 16);
    CHECK(sl_json_get(record.messages->child, "role") && sl_json_get(record.messages->child, "content"));
    sl_free(over);
    sl_record_free(&record);
}

TEST(columns_by_name)
{
    sl_record_counts counts;
    sl_records *records;
    sl_record record;
    bool more;
    CHECK_OK(open_records(GOLDEN "required.parquet", NULL, &counts, &records));
    CHECK_OK(sl_records_next(records, &record, &more));
    CHECK_STR(record.text, "one");
    sl_record_free(&record);
    sl_records_close(records);
    CHECK_OK(open_records(GOLDEN "chats.parquet", "source", &counts, &records));
    sl_status status = sl_records_next(records, &record, &more);
    if (!is_missing(status)) {
        CHECK_OK(status);
        CHECK_STR(record.text, "s");
        sl_record_free(&record);
    }
    sl_records_close(records);
    CHECK_FAILS(open_records(GOLDEN "plain.parquet", "id", &counts, &records), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "its columns: id, text");
    CHECK_OK(open_records(GOLDEN "brotli.parquet", NULL, &counts, &records));
    CHECK_FAILS(sl_records_next(records, &record, &more), SL_E_UNSUPPORTED);
    CHECK_CONTAINS(sl_error_message(), "codec 4");
    sl_records_close(records);
}

/* Every truncation; fuzz_parquet changes bytes. */
TEST(damaged_files)
{
    char *bytes;
    size_t length;
    CHECK_OK(sl_file_read_all(GOLDEN "required.parquet", 1 << 20, &bytes, &length));
    for (size_t cut = 0; cut < length; cut++) {
        CHECK_OK(sl_file_write_atomic(test_path("cut.parquet"), bytes, cut));
        sl_record_counts counts;
        sl_records *records;
        CHECK_FAILS(open_records(test_path("cut.parquet"), NULL, &counts, &records), SL_E_FORMAT);
    }
    sl_free(bytes);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(texts);
    RUN(chats);
    RUN(records_outlive_their_file);
    RUN(columns_by_name);
    RUN(damaged_files);
    return test_end();
}
