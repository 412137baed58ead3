/* Any bytes as a parquet file: rows to the end or one sentence, in memory that the file's size bounds. */
#include <string.h>

#include "data/records.h"
#include "fuzz/fuzz.h"

const char *const sl_fuzz_dictionary[] = {"PAR1", "text", "messages", "list", "element", "role", "content", NULL};

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    sl_record_counts counts = {0};
    sl_records *records;
    sl_record record;
    bool more = true;
    int64_t used = 0;
    sl_records_config config = {sl_fuzz_file(data, size), SL_FORMAT_PARQUET, NULL, &counts};
    if (sl_records_open(&config, &records) != SL_OK) {
        FUZZ_REQUIRE(sl_error_message()[0]);
        return 1 + (int) (strlen(sl_error_message()) % 100);
    }
    while (more && counts.records < 20000) {
        if (sl_records_next(records, &record, &more) != SL_OK) {
            FUZZ_REQUIRE(sl_error_message()[0]);
            sl_records_close(records);
            return 101 + (int) (strlen(sl_error_message()) % 100) + (int) (used % 16) * 100;
        }
        used += more;
        sl_record_free(&record);
    }
    sl_records_close(records);
    return 2000 + (int) (used % 64) * 8 + (int) (counts.records % 8);
}
