/* Sequences: their order, epochs, splits, targets, positions and segments; any position again gives the same bytes. */
#include "core/file.h"
#include "data/loader.h"
#include "data/shard.h"
#include "test.h"

enum { SEQLEN = 8, SEQUENCES = 25 };

static sl_loader_config config(const char *name)
{
    return (sl_loader_config){
        .data = test_path(name), .seqlen = SEQLEN, .vocab = 256, .document_token = -1, .max_documents = 1, .seed = 9};
}

/* 1 + 25*8 tokens: separator and bytes 33, 34, ... so that a token tells its place. */
static void make_counting(void)
{
    char text[SEQUENCES * SEQLEN + 3];
    for (int i = 0; i < SEQUENCES * SEQLEN; i++)
        text[i] = (char) (33 + i);
    CHECK_OK(sl_file_write_atomic(test_path("counting"), text, SEQUENCES * SEQLEN));
}

static sl_batch batch_of(int64_t position, int64_t sequences, int64_t offset, int64_t each, int32_t *tokens,
                         int32_t *targets, int32_t *positions, int32_t *segments, int64_t most_segments)
{
    sl_type type = sl_type_1d(SL_I32, sequences * each);
    return (sl_batch){position, sequences, offset, each,
                      .input = {[SL_INPUT_TOKENS] = {tokens, type},
                                [SL_INPUT_TARGETS] = {targets, type},
                                [SL_INPUT_POSITIONS] = {positions, type},
                                [SL_INPUT_SEGMENTS] = {segments, sl_type_1d(SL_I32, most_segments + 1)}}};
}

static sl_status fill(sl_source *source, sl_split split, const sl_batch *batch)
{
    return source->class->fill(source, split, batch);
}

static int32_t first_token(sl_source *loader, sl_split split, int64_t position)
{
    int32_t tokens[SEQLEN], targets[SEQLEN], positions[SEQLEN], segments[2];
    sl_batch batch = batch_of(position, 1, 0, SEQLEN, tokens, targets, positions, segments, 1);
    CHECK_OK(fill(loader, split, &batch));
    for (int i = 0; i + 1 < SEQLEN; i++)
        CHECK_I64(targets[i], tokens[i + 1]);
    for (int i = 0; i < SEQLEN; i++)
        CHECK_I64(positions[i], i);
    CHECK(segments[0] == 0 && segments[1] == SEQLEN);
    return tokens[0];
}

static int64_t sequence_index(int32_t token)
{
    return token == 0 ? 0 : (token - 33 + 1) / SEQLEN;
}

TEST(epochs_cover_everything_once)
{
    sl_source *loader;
    sl_loader_config c = config("counting");
    make_counting();
    CHECK_OK(sl_loader_open(&c, &loader));
    CHECK_I64(loader->sequences[SL_SPLIT_TRAIN], SEQUENCES);
    int64_t order[2][SEQUENCES], equal = 0;
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen[SEQUENCES] = {0};
        for (int64_t i = 0; i < SEQUENCES; i++) {
            order[epoch][i] = sequence_index(first_token(loader, SL_SPLIT_TRAIN, epoch * SEQUENCES + i));
            seen[order[epoch][i]]++;
        }
        for (int i = 0; i < SEQUENCES; i++)
            CHECK_I64(seen[i], 1);
    }
    for (int i = 0; i < SEQUENCES; i++)
        equal += order[0][i] == order[1][i];
    CHECK(equal < SEQUENCES / 2);
    /* Resume: another loader, asked for the middle first. */
    sl_source *again;
    CHECK_OK(sl_loader_open(&c, &again));
    CHECK_STR(again->identity, loader->identity);
    for (int64_t i = SEQUENCES + 7; i >= 0; i -= 3)
        CHECK_I64(first_token(again, SL_SPLIT_TRAIN, i), first_token(loader, SL_SPLIT_TRAIN, i));
    sl_source_close(again);
    sl_source_close(loader);
}

TEST(held_out_share)
{
    sl_source *loader;
    sl_loader_config c = config("counting");
    c.val_share = 0.2;
    CHECK_OK(sl_loader_open(&c, &loader));
    CHECK_I64(loader->sequences[SL_SPLIT_TRAIN], 20);
    CHECK_I64(loader->sequences[SL_SPLIT_VALIDATION], 5);
    for (int64_t i = 0; i < 40; i++)
        CHECK(sequence_index(first_token(loader, SL_SPLIT_TRAIN, i)) < 20);
    for (int64_t i = 0; i < 10; i++)
        CHECK_I64(sequence_index(first_token(loader, SL_SPLIT_VALIDATION, i)), 20 + i % 5);
    sl_source_close(loader);
    c.val_share = 0;
    c.val_data = test_path("counting");
    CHECK_OK(sl_loader_open(&c, &loader));
    CHECK_I64(loader->sequences[SL_SPLIT_TRAIN], 25);
    CHECK_I64(loader->sequences[SL_SPLIT_VALIDATION], 25);
    sl_source_close(loader);
}

TEST(slices_are_parts_of_the_sequence)
{
    sl_source *loader;
    sl_loader_config c = config("counting");
    CHECK_OK(sl_loader_open(&c, &loader));
    uint64_t calls = sl_heap_calls();
    for (int64_t position = 0; position < 5; position++) {
        int32_t whole[SEQLEN], part[3], targets[3], positions[3], segments[3];
        sl_batch all = batch_of(position, 1, 0, SEQLEN, whole, NULL, NULL, NULL, 0);
        CHECK_OK(fill(loader, SL_SPLIT_TRAIN, &all));
        for (int64_t offset = 0; offset < SEQLEN; offset += 3) {
            int64_t n = SL_MIN(3, SEQLEN - offset);
            sl_batch slice = batch_of(position, 1, offset, n, part, targets, positions, segments, 2);
            CHECK_OK(fill(loader, SL_SPLIT_TRAIN, &slice));
            for (int64_t i = 0; i < n; i++) {
                CHECK_I64(part[i], whole[offset + i]);
                CHECK_I64(positions[i], offset + i);
                if (offset + i + 1 < SEQLEN)
                    CHECK_I64(targets[i], whole[offset + i + 1]);
            }
            CHECK(segments[0] == 0 && segments[1] == SEQLEN && segments[2] == SEQLEN);
        }
    }
    CHECK_I64(sl_heap_calls() - calls, 0);
    sl_source_close(loader);
}

TEST(documents_are_kept_apart)
{
    sl_source *loader;
    CHECK_OK(sl_dir_create(test_path("docs")));
    CHECK_OK(sl_file_write_atomic(test_path("docs/a"), "abc", 3)); /* 0 a b c | 0 d e f g h | 0 i j k l m n o p ... */
    CHECK_OK(sl_file_write_atomic(test_path("docs/b"), "defgh", 5));
    CHECK_OK(sl_file_write_atomic(test_path("docs/c"), "ijklmnopq", 9));
    sl_loader_config c = config("docs");
    c.max_documents = 3;
    CHECK_OK(sl_loader_open(&c, &loader));
    CHECK_I64(loader->sequences[SL_SPLIT_TRAIN], 2);
    int32_t tokens[16], positions[16], segments[7];
    sl_batch batch = batch_of(0, 2, 0, SEQLEN, tokens, NULL, positions, segments, 6);
    CHECK_OK(fill(loader, SL_SPLIT_TRAIN, &batch));
    bool first_first = tokens[1] == 'a';
    int64_t a = first_first ? 0 : SEQLEN, b = SEQLEN - a;
    int32_t want_a[] = {0, 1, 2, 3, 0, 1, 2, 3}, want_b[] = {0, 1, 0, 1, 2, 3, 4, 5};
    CHECK(memcmp(positions + a, want_a, sizeof want_a) == 0);
    CHECK(memcmp(positions + b, want_b, sizeof want_b) == 0); /* g h | 0 i j k l m */
    int32_t want_first[] = {0, 4, 8, 10, 16, 16, 16}, want_second[] = {0, 2, 8, 12, 16, 16, 16};
    CHECK(memcmp(segments, first_first ? want_first : want_second, sizeof want_first) == 0);
    sl_source_close(loader);

    c.max_documents = 1; /* one segment per sequence, however many documents */
    CHECK_OK(sl_loader_open(&c, &loader));
    batch.input[SL_INPUT_SEGMENTS].type.dim[0] = 3;
    CHECK_OK(fill(loader, SL_SPLIT_TRAIN, &batch));
    int32_t want[] = {0, 8, 16};
    CHECK(memcmp(segments, want, sizeof want) == 0);
    sl_source_close(loader);
}

/* A slice has the positions and targets of its part of the whole, and the segments of all of it: positions count from the
 * document's start, in whichever slice that is. */
TEST(documents_in_slices)
{
    sl_source *loader;
    int32_t whole[SEQLEN], bounds[5], positions[SEQLEN], segments[5];
    sl_loader_config c = config("docs"); /* as above: documents begin at 0, 4 | 2 */
    c.max_documents = 3;
    CHECK_OK(sl_loader_open(&c, &loader));
    for (int64_t p = 0; p < 2; p++) {
        int32_t tokens[SEQLEN], want[SEQLEN], start = 0;
        sl_batch all = batch_of(p, 1, 0, SEQLEN, tokens, NULL, whole, bounds, 4);
        CHECK_OK(fill(loader, SL_SPLIT_TRAIN, &all));
        for (int32_t i = 0; i < SEQLEN; i++) {
            start = tokens[i] == 0 ? i : start;
            want[i] = i - start;
        }
        CHECK(memcmp(whole, want, sizeof want) == 0);
        for (int64_t offset = 0; offset < SEQLEN; offset++)
            for (int64_t n = 1; n <= SEQLEN - offset; n++) {
                sl_batch slice = batch_of(p, 1, offset, n, NULL, NULL, positions, segments, 4);
                CHECK_OK(fill(loader, SL_SPLIT_TRAIN, &slice));
                CHECK(memcmp(positions, want + offset, (size_t) n * sizeof *want) == 0);
                CHECK(memcmp(segments, bounds, sizeof bounds) == 0);
            }
    }
    sl_source_close(loader);
}

TEST(more_documents_than_allowed_merge)
{
    sl_source *loader;
    CHECK_OK(sl_dir_create(test_path("tiny")));
    char name[64];
    for (int i = 0; i < 9; i++) {
        snprintf(name, sizeof name, "tiny/%d", i);
        CHECK_OK(sl_file_write_atomic(test_path(name), "x", 1));
    }
    sl_loader_config c = config("tiny"); /* 0 x 0 x 0 x 0 x ... */
    c.max_documents = 2;
    CHECK_OK(sl_loader_open(&c, &loader));
    int32_t positions[SEQLEN], segments[3];
    sl_batch batch = batch_of(0, 1, 0, SEQLEN, NULL, NULL, positions, segments, 2);
    CHECK_OK(fill(loader, SL_SPLIT_TRAIN, &batch));
    int32_t want[] = {0, 1, 0, 1, 2, 3, 4, 5}, bounds[] = {0, 2, 8};
    CHECK(memcmp(positions, want, sizeof want) == 0);
    CHECK(memcmp(segments, bounds, sizeof bounds) == 0);
    sl_source_close(loader);
}

TEST(refuses)
{
    sl_source *loader;
    sl_loader_config c = config("counting");
    c.seqlen = 1000;
    CHECK_FAILS(sl_loader_open(&c, &loader), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "holds 201 tokens");
    c = config("counting");
    c.seqlen = 200;
    c.val_share = 0.5; /* one sequence cannot be split */
    CHECK_FAILS(sl_loader_open(&c, &loader), SL_E_USAGE);
    c = config("counting");
    c.max_documents = 4;
    c.document_token = 256;
    CHECK_FAILS(sl_loader_open(&c, &loader), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "token 256 (--document-token) begins a document, but the vocabulary has 256");
    c.max_documents = 1; /* not asked for */
    CHECK_OK(sl_loader_open(&c, &loader));
    sl_source_close(loader);
    static int32_t shard[SL_SHARD_HEADER_BYTES / 4 + 200] = {20240520, 2,
                                                             200}; /* of a format that names no such token */
    CHECK_OK(sl_file_write_atomic(test_path("shard.bin"), shard, sizeof shard));
    c = config("shard.bin");
    c.max_documents = 4;
    CHECK_FAILS(sl_loader_open(&c, &loader), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "shard.bin does not say which token begins a document: give --document-token N");
    c.document_token = 0;
    CHECK_OK(sl_loader_open(&c, &loader));
    sl_source_close(loader);
    c = config("nothing-there");
    CHECK_FAILS(sl_loader_open(&c, &loader), SL_E_IO);
}

/* The identity names the sequences: what changes any of them changes it, and nothing else does. */
TEST(identity)
{
    sl_loader_config variants[9];
    char prints[SL_COUNT(variants)][sizeof((sl_source *) 0)->identity];
    make_counting();
    char text[2 * SEQLEN * SEQUENCES];
    memset(text, 'x', sizeof text);
    CHECK_OK(sl_file_write_atomic(test_path("longer"), text, sizeof text));
    variants[0] = config("counting");
    for (int64_t i = 1; i < SL_COUNT(variants); i++)
        variants[i] = variants[0];
    char longer[512];
    snprintf(longer, sizeof longer, "%s", test_path("longer"));
    variants[1].data = longer;
    variants[2].seqlen = SEQLEN / 2;
    variants[3].seed++;
    variants[4].val_share = 0.2;
    variants[5].max_documents = 2;
    variants[6].max_documents = 2, variants[6].document_token = 40;
    variants[7].document_token = 40; /* documents are not kept apart: it does not matter */
    variants[8].val_data = longer;   /* no sequence of a step comes from there */
    for (int64_t i = 0; i < SL_COUNT(variants); i++) {
        sl_source *loader;
        for (int again = 0; again < 2; again++) {
            CHECK_OK(sl_loader_open(&variants[i], &loader));
            CHECK(!again || strcmp(loader->identity, prints[i]) == 0);
            memcpy(prints[i], loader->identity, sizeof prints[i]);
            sl_source_close(loader);
        }
        for (int64_t j = 0; j < i; j++)
            CHECK_MSG((strcmp(prints[i], prints[j]) == 0) == (i >= 7 && (j == 0 || j == 7)), "variants %d and %d",
                      (int) i, (int) j);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(epochs_cover_everything_once);
    RUN(held_out_share);
    RUN(slices_are_parts_of_the_sequence);
    RUN(documents_are_kept_apart);
    RUN(documents_in_slices);
    RUN(more_documents_than_allowed_merge);
    RUN(refuses);
    RUN(identity);
    return test_end();
}
