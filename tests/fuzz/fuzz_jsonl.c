/* Any bytes as a file of records, compressed or not: read to the end or refused in one sentence, and every record counted. */
#include <string.h>

#include "data/records.h"
#include "fuzz/fuzz.h"

const char *const sl_fuzz_dictionary[] = {"{\"text\":\"",
                                          "\"messages\":[",
                                          "\"role\":\"user\"",
                                          "\"content\":",
                                          "\"from\":\"gpt\"",
                                          "\"value\":",
                                          "\"conversations\":",
                                          "\"prompt\":",
                                          "\"completion\":",
                                          "\"instruction\":",
                                          "\"output\":",
                                          "\\ud83d",
                                          "\\udc00",
                                          "\n",
                                          "[",
                                          "]",
                                          "},{",
                                          NULL};

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    sl_record_counts counts = {0};
    sl_records *records;
    sl_record record;
    bool more = true;
    int64_t used = 0, bytes = 0;
    sl_records_config config = {sl_fuzz_file(data, size), SL_FORMAT_JSON, NULL, &counts};
    if (sl_records_open(&config, &records) != SL_OK) {
        FUZZ_REQUIRE(sl_error_message()[0]);
        return 1;
    }
    while (more && bytes < 64 << 20) {
        if (sl_records_next(records, &record, &more) != SL_OK) {
            FUZZ_REQUIRE(sl_error_message()[0]);
            sl_records_close(records);
            return 2 + (int) (used % 16);
        }
        used += more;
        bytes += more ? (int64_t) (record.length + record.completion_length) + 1 : 0;
        sl_record_free(&record);
    }
    int64_t skipped = 0;
    for (int i = 0; i < SL_RECORD_SKIPS; i++)
        skipped += counts.skipped[i];
    FUZZ_REQUIRE(more || used + skipped == counts.records);
    FUZZ_REQUIRE((counts.first[0] != 0) == (skipped > 0));
    sl_records_close(records);
    return 20 + (int) (counts.kinds[1] * 3 + counts.kinds[2] * 5 + skipped * 7 + counts.replaced) % 2000;
}
