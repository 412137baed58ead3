/* Records become tokens in a cache, and documents are packed: what comes out is what went in, whatever threads, cache and slices. */
#include "core/fault.h"
#include "core/file.h"
#include "data/packed.h"
#include "data/packing.h"
#include "data/token_cache.h"
#include "graph/graph.h"
#include "test.h"

enum { SEQLEN = 16, RECORDS = 60 };

/* Prompts of 0..4 and completions of 1..12 letters; every seventh has nothing to learn within a sequence, for its prompt is long. */
static int prompt_of(int i)
{
    return i % 7 == 6 ? 20 : i % 5;
}

static int completion_of(int i)
{
    return 1 + i * 5 % 12;
}

static void write_completions(const char *path)
{
    char text[RECORDS * 100] = "", *at = text;
    for (int i = 0; i < RECORDS; i++)
        at += sprintf(at, "{\"prompt\": \"%.*s\", \"completion\": \"%.*s\"}\n", prompt_of(i), "pppppppppppppppppppp",
                      completion_of(i), "abcdefghijkl");
    at += sprintf(at, "{\"prompt\": \"p\", \"completion\": \"\"}\n");
    CHECK_OK(sl_file_write_atomic(path, text, (size_t) (at - text)));
}

static sl_loader_config config(const char *data, const char *cache, int threads)
{
    return (sl_loader_config){.data = data,
                              .seqlen = SEQLEN,
                              .vocab = 256,
                              .document_token = -1,
                              .max_documents = 1,
                              .seed = 3,
                              .tokenize = {.cache = cache, .threads = threads}};
}

typedef struct filled {
    int32_t tokens[SEQLEN], targets[SEQLEN], positions[SEQLEN], segments[SEQLEN + 2];
} filled;

static filled fill_one(sl_source *source, sl_split split, int64_t position, int64_t slice)
{
    filled f;
    for (int64_t at = 0; at < SEQLEN; at += slice) {
        sl_type type = sl_type_1d(SL_I32, slice);
        sl_batch batch = {position, 1, at, slice,
                          .input = {[SL_INPUT_TOKENS] = {f.tokens + at, type},
                                    [SL_INPUT_TARGETS] = {f.targets + at, type},
                                    [SL_INPUT_POSITIONS] = {f.positions + at, type},
                                    [SL_INPUT_SEGMENTS] = {at ? NULL : f.segments, sl_type_1d(SL_I32, SEQLEN + 2)}}};
        CHECK_OK(source->class->fill(source, split, &batch));
    }
    return f;
}

/* A document as the sequence holds it: | 0 prompt completion |, its targets one further and those of the prompt ignored. */
static int check_document(const filled *f, int first, int end)
{
    char text[SEQLEN + 1] = "";
    int p = 0;
    for (int i = first; i < end; i++) {
        CHECK_I64(f->positions[i], i - first);
        text[i - first] = (char) f->tokens[i];
    }
    while (text[1 + p] == 'p')
        p++;
    int n = end - first - 1 - p; /* of the completion, which ends with a separator that is only a target */
    CHECK_I64(f->tokens[first], 0);
    CHECK(memcmp(text + 1 + p, "abcdefghijkl", (size_t) n) == 0);
    for (int i = first; i < end; i++) {
        int32_t next = i + 1 < end ? f->tokens[i + 1] : n < 12 && end - first < SEQLEN ? 0 : f->targets[i];
        CHECK_I64(f->targets[i], i - first < p ? SL_TARGET_IGNORED : next);
    }
    return 100 * p + n;
}

TEST(documents_come_out_whole)
{
    sl_source *source;
    int seen[3000] = {0}, documents = 0, padding = 0;
    write_completions(test_path("c.jsonl"));
    sl_loader_config c = config(test_path("c.jsonl"), test_path("cache"), 1);
    CHECK_OK(sl_loader_open(&c, &source));
    int64_t n = source->sequences[SL_SPLIT_TRAIN];
    const sl_packing_counts *counts = source->contents[SL_SPLIT_TRAIN]->packing;
    const sl_token_cache *cache = source->contents[SL_SPLIT_TRAIN]->cache;
    for (int64_t s = 0; s < n; s++) {
        filled f = fill_one(source, SL_SPLIT_TRAIN, s, SEQLEN), sliced = fill_one(source, SL_SPLIT_TRAIN, s, 4);
        CHECK(memcmp(&f, &sliced, sizeof f) == 0);
        int segments = 0;
        while (f.segments[segments] < SEQLEN)
            segments++;
        CHECK(segments <= source->most_segments);
        for (int d = 0; d < segments; d++) {
            if (f.tokens[f.segments[d]] == 0 && f.tokens[SL_MIN(f.segments[d] + 1, SEQLEN - 1)] == 0) {
                padding += f.segments[d + 1] - f.segments[d];
                for (int i = f.segments[d]; i < SEQLEN; i++)
                    CHECK_I64(f.targets[i], SL_TARGET_IGNORED);
                continue;
            }
            seen[check_document(&f, f.segments[d], f.segments[d + 1])]++;
            documents++;
        }
    }
    int cropped = 0, dropped = 0;
    for (int i = 0; i < RECORDS; i++) {
        int p = prompt_of(i), k = completion_of(i), room = SEQLEN - 1 - p;
        if (p >= SEQLEN) {
            dropped++;
            continue;
        }
        cropped += k > room;
        seen[100 * p + SL_MIN(k, room)]--;
    }
    for (int i = 0; i < 3000; i++)
        CHECK_I64(seen[i], 0);
    CHECK_I64(counts->documents, documents);
    CHECK_I64(counts->dropped, dropped);
    CHECK_I64(counts->cropped, cropped);
    CHECK_I64(counts->padding, padding);
    CHECK_MSG(padding < 4 * SEQLEN, "padding %d", padding);
    CHECK_I64(cache->records.records, RECORDS + 1);
    CHECK_I64(cache->records.skipped[SL_RECORD_EMPTY], 1);
    CHECK_I64(cache->documents, RECORDS);
    CHECK(!cache->reused);
    sl_source_close(source);
}

static void check_same(sl_source *a, sl_source *b)
{
    CHECK_STR(b->identity, a->identity);
    CHECK_STR(b->sample, a->sample);
    CHECK_I64(b->sequences[SL_SPLIT_TRAIN], a->sequences[SL_SPLIT_TRAIN]);
    for (int64_t s = 0; s < 2 * a->sequences[SL_SPLIT_TRAIN]; s++) {
        filled x = fill_one(a, SL_SPLIT_TRAIN, s, SEQLEN), y = fill_one(b, SL_SPLIT_TRAIN, s, SEQLEN);
        CHECK(memcmp(x.tokens, y.tokens, sizeof x.tokens) == 0 && memcmp(x.targets, y.targets, sizeof x.targets) == 0);
    }
}

/* By one thread, by three, from the cache, behind a run that was killed half-way, and for other record kinds. */
TEST(threads_and_caches_change_nothing)
{
    sl_source *one, *three, *cached;
    char part[600];
    write_completions(test_path("c.jsonl"));
    sl_loader_config c = config(test_path("c.jsonl"), test_path("one"), 1);
    CHECK_OK(sl_loader_open(&c, &one));
    c = config(test_path("c.jsonl"), test_path("three"), 3);
    CHECK_OK(sl_loader_open(&c, &three));
    check_same(one, three);
    sl_source_close(three);
    CHECK_OK(sl_loader_open(&c, &cached));
    CHECK(cached->contents[SL_SPLIT_TRAIN]->cache->reused);
    CHECK_I64(cached->contents[SL_SPLIT_TRAIN]->cache->records.skipped[SL_RECORD_EMPTY], 1);
    check_same(one, cached);
    snprintf(part, sizeof part, "%s", cached->contents[SL_SPLIT_TRAIN]->cache->folder);
    sl_source_close(cached);
    /* What a killed run leaves: a folder without its name, whatever is in it. */
    char killed[620];
    snprintf(killed, sizeof killed, "%s.part", part);
    CHECK_OK(sl_rename_durable(part, killed));
    CHECK_OK(sl_loader_open(&c, &cached));
    CHECK(!cached->contents[SL_SPLIT_TRAIN]->cache->reused && !sl_dir_exists(killed));
    check_same(one, cached);
    sl_source_close(cached);
    sl_source_close(one);
}

/* Every write, rename and allocation fails in turn: an error, and the next run is as the first. */
TEST(failures_leave_no_half_cache)
{
    const sl_fault_kind kinds[] = {SL_FAULT_ALLOC, SL_FAULT_OPEN, SL_FAULT_WRITE, SL_FAULT_RENAME, SL_FAULT_SYNC};
    write_completions(test_path("c.jsonl"));
    sl_loader_config c = config(test_path("c.jsonl"), test_path("faults"), 1);
    for (int k = 0; k < 5; k++)
        for (int64_t nth = 1;; nth++) {
            sl_source *source = NULL;
            if (sl_dir_exists(test_path("faults")))
                CHECK_OK(sl_dir_remove(test_path("faults")));
            sl_fault_arm(kinds[k], nth);
            sl_status status = sl_loader_open(&c, &source);
            bool done = sl_fault_events(kinds[k]) < nth;
            sl_fault_arm(kinds[k], 0);
            CHECK(status != SL_OK || source);
            sl_source_close(source);
            if (done)
                break;
            CHECK_OK(sl_loader_open(&c, &source));
            CHECK_I64(source->contents[SL_SPLIT_TRAIN]->cache->documents, RECORDS);
            sl_source_close(source);
        }
}

/* Texts of records are the stream that shards of them would be; a folder's larger kind is the data. */
TEST(texts_are_a_stream)
{
    static const char lines[] =
        "{\"text\": \"abc\"}\n{\"text\": \"\"}\n{\"text\": \"defghijklmnopqrstuvwxyz0123456789\"}\n";
    sl_source *source;
    CHECK_OK(sl_dir_create(test_path("folder")));
    CHECK_OK(sl_file_write_atomic(test_path("folder/t.jsonl"), lines, sizeof lines - 1));
    CHECK_OK(sl_file_write_atomic(test_path("folder/README.md"), "# data", 6));
    sl_loader_config c = config(test_path("folder"), test_path("cache"), 2);
    CHECK_OK(sl_loader_open(&c, &source));
    CHECK_I64(source->sequences[SL_SPLIT_TRAIN], 2);
    CHECK_I64(source->contents[SL_SPLIT_TRAIN]->tokens, 4 + 34);
    CHECK_I64(source->contents[SL_SPLIT_TRAIN]->skipped[SL_SKIP_BESIDE_RECORDS], 1);
    char made[400];
    sl_corpus_made_text(source->contents[SL_SPLIT_TRAIN], made, sizeof made);
    CHECK_STR(made, "3 records, 2 texts, 1 left out (empty)");
    bool found = false;
    for (int64_t s = 0; s < 2; s++) {
        filled f = fill_one(source, SL_SPLIT_TRAIN, s, SEQLEN);
        found |= f.tokens[0] == 0 && f.tokens[1] == 'a' && f.tokens[4] == 0 && f.targets[4] == 'd';
    }
    CHECK(found);
    sl_source_close(source);
    c.format = SL_DATA_TEXT; /* then the lines are text, and the folder is as it always was */
    CHECK_OK(sl_loader_open(&c, &source));
    CHECK(!source->contents[SL_SPLIT_TRAIN]->cache);
    CHECK_I64(source->contents[SL_SPLIT_TRAIN]->files[SL_TOKENS_TEXT], 2);
    sl_source_close(source);
}

static void refused(const char *lines, const char *message)
{
    sl_source *source;
    CHECK_OK(sl_file_write_atomic(test_path("bad.jsonl"), lines, strlen(lines)));
    sl_loader_config c = config(test_path("bad.jsonl"), test_path("cache"), 1);
    CHECK_FAILS(sl_loader_open(&c, &source), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), message);
}

TEST(refusals_say_why)
{
    sl_source *source;
    refused("{\"text\": 1}\n", "no record that can be used (1 record, 1 left out (without a known field)): ");
    refused("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n", "needs a tokenizer");
    write_completions(test_path("c.jsonl"));
    sl_loader_config c = config(test_path("c.jsonl"), test_path("cache"), 1);
    c.vocab = 50257;
    CHECK_FAILS(sl_loader_open(&c, &source), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "--tokenizer");
    c.vocab = 256;
    c.val_share = 0.1;
    CHECK_OK(sl_loader_open(&c, &source));
    int64_t train = source->sequences[SL_SPLIT_TRAIN], held = source->sequences[SL_SPLIT_VALIDATION];
    CHECK(held >= 1 && train > held);
    CHECK(memcmp(fill_one(source, SL_SPLIT_VALIDATION, 0, SEQLEN).tokens,
                 fill_one(source, SL_SPLIT_VALIDATION, held, SEQLEN).tokens, SEQLEN * 4) == 0);
    sl_source_close(source);
}

/* A text begins with the token that the tokenizer's post-processor adds, or with its end token; a prompt is not counted. */
TEST(tokenizers_make_tokens)
{
    static const char lines[] = "{\"prompt\": \"Hello\", \"completion\": \" world\"}\n{\"text\": \"Hello world\"}\n";
    const char *const names[] = {"gpt2", "llama3", "llama2"};
    CHECK_OK(sl_file_write_atomic(test_path("t.jsonl"), lines, sizeof lines - 1));
    for (int i = 0; i < 3; i++) {
        char folder[600];
        sl_tokenizer *tokenizer;
        sl_encoder *encoder;
        sl_tokens want = {0};
        sl_source *source;
        snprintf(folder, sizeof folder, "%s/tests/golden/text/%s", SL_SOURCE_DIR, names[i]);
        CHECK_OK(sl_tokenizer_open(folder, &tokenizer));
        CHECK_OK(sl_encoder_create(tokenizer, &encoder));
        CHECK_OK(sl_encode(encoder, "Hello world", 11, SL_ENCODE_AROUND, &want));
        sl_loader_config c = config(test_path("t.jsonl"), test_path("cache"), 2);
        c.vocab = 100000;
        c.tokenize.tokenizer = folder;
        CHECK_OK(sl_loader_open(&c, &source));
        const sl_token_cache *cache = source->contents[SL_SPLIT_TRAIN]->cache;
        CHECK(cache->records.kinds[SL_RECORD_TEXT] == 1 && cache->records.kinds[SL_RECORD_COMPLETION] == 1);
        CHECK_STR(source->contents[SL_SPLIT_TRAIN]->encoding, names[i]);
        CHECK(cache->counted < cache->tokens);
        bool begins = i > 0; /* GPT-2's has no token of its own before a text */
        int n = (int) want.count - begins, matches = 0;
        for (int64_t k = 0; k < source->sequences[SL_SPLIT_TRAIN]; k++) {
            filled f = fill_one(source, SL_SPLIT_TRAIN, k, SEQLEN);
            for (int d = 0; f.segments[d] < SEQLEN; d++) {
                const int32_t *t = f.tokens + f.segments[d];
                int skip = begins || t[0] == cache->document_token;
                matches += f.segments[d] + skip + n - 1 <= SEQLEN &&
                           memcmp(t + skip, want.ids + begins, (size_t) (n - 1) * sizeof *t) == 0;
            }
        }
        CHECK_I64(matches, 2);
        sl_source_close(source);
        sl_tokens_free(&want);
        sl_encoder_destroy(encoder);
        sl_tokenizer_close(tokenizer);
    }
}

/* More than a window of random lengths: every document once, no sequence above its length, and little left over. */
TEST(best_fit_fills_sequences)
{
    enum { COUNT = 150000, LENGTH = 1000 };
    sl_packed_document *list;
    sl_packing packing;
    int64_t used = 0, last = -1;
    static bool seen[COUNT];
    CHECK_OK(sl_alloc(&list, COUNT, sizeof *list));
    for (uint32_t i = 0, x = 1; i < COUNT; i++) {
        x = x * 1664525 + 1013904223;
        list[i] = (sl_packed_document){i, (int32_t) (1 + (x >> 8) % (i % 3 ? 400 : LENGTH))};
        used += list[i].span;
    }
    CHECK_OK(sl_packing_create(list, COUNT, LENGTH, &packing));
    for (int64_t s = 0; s < packing.n_sequences; s++) {
        int64_t sum = 0;
        CHECK(packing.first[s + 1] > packing.first[s]);
        CHECK(packing.first[s + 1] - packing.first[s] <= packing.most);
        for (int64_t d = packing.first[s]; d < packing.first[s + 1]; d++) {
            REQUIRE(!seen[packing.documents[d].start]);
            seen[packing.documents[d].start] = true;
            sum += packing.documents[d].span;
            last = d;
        }
        CHECK(sum <= LENGTH);
    }
    CHECK_I64(last, COUNT - 1);
    CHECK((double) used > 0.999 * (double) (packing.n_sequences * LENGTH));
    sl_packing_free(&packing);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(documents_come_out_whole);
    RUN(threads_and_caches_change_nothing);
    RUN(failures_leave_no_half_cache);
    RUN(texts_are_a_stream);
    RUN(refusals_say_why);
    RUN(tokenizers_make_tokens);
    RUN(best_fit_fills_sequences);
    return test_end();
}
