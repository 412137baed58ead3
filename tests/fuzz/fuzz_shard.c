/* Any bytes as a data file: opened as a corpus or refused in one sentence; what opens can be read or refused, token by token. */
#include <string.h>

#include "data/corpus.h"
#include "fuzz/fuzz.h"

const char *const sl_fuzz_dictionary[] = {"\x88\xd8\x34\x01", "\xa1\xd9\x34\x01", "\x01", "\x02", "\x07", NULL};

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    sl_corpus *corpus;
    int32_t tokens[256];
    int outcome = 0;
    sl_corpus_config config = {
        .paths = sl_fuzz_file(data, size), .vocab = 50257, .document_token = -1, .format = SL_DATA_BYTES};
    if (sl_corpus_open(&config, &corpus) != SL_OK) {
        FUZZ_REQUIRE(sl_error_message()[0]);
        return 1 + (int) (strlen(sl_error_message()) % 200);
    }
    int64_t total = sl_corpus_tokens(corpus);
    FUZZ_REQUIRE(total > 0 && total <= (int64_t) size + 1);
    for (int64_t at = 0; at < total && !outcome; at += 256) {
        int64_t count = total - at < 256 ? total - at : 256;
        if (sl_corpus_read(corpus, at, count, tokens) != SL_OK)
            outcome = 300;
        else
            for (int64_t i = 0; i < count && !outcome; i++)
                FUZZ_REQUIRE(tokens[i] >= 0 && tokens[i] < 50257);
    }
    sl_corpus_close(corpus);
    return outcome;
}
