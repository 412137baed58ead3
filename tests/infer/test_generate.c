/* Generation from a prompt: the same text within every budget, what ends it, and prompts of every length. */
#include "infer/generate.h"

#include "greedy.h"
#include "train/run_job.h"

/* ---- the text as it appears ---- */

static sl_status gather(void *user, const char *text, size_t length)
{
    sl_text_append(user, text, length);
    sl_text_append(user, "/", 1);
    return SL_OK;
}

/* Puts the bytes one by one, and compares the pieces that are shown. */
static void check_pieces(const char *bytes, size_t length, const char *const *stops, int n_stops, const char *want)
{
    sl_text seen = {0};
    sl_text_stream s = {.stops = stops, .n_stops = n_stops, .fn = gather, .user = &seen};
    for (size_t i = 0; i < length; i++)
        CHECK_OK(sl_text_stream_put(&s, bytes + i, 1, false));
    CHECK_OK(sl_text_stream_put(&s, NULL, 0, true));
    sl_text_append(&seen, "", 1);
    CHECK_STR(seen.data, want);
    sl_text_free(&seen);
    sl_text_stream_free(&s);
}

TEST(pieces)
{
    static const char *const stops[] = {"END", "\n\n"};
    check_pieces("ab", 2, NULL, 0, "a/b/");
    check_pieces("", 0, NULL, 0, "");
    check_pieces("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9, NULL, 0, "\xc3\xa4/\xe2\x82\xac/\xf0\x9f\x98\x80/");
    check_pieces("a\xff\x62", 3, NULL, 0, "a/\xef\xbf\xbd/b/");
    check_pieces("a\xe2\x82", 3, NULL, 0, "a/\xef\xbf\xbd/");                           /* cut off at the end */
    check_pieces("\xed\xa0\x80", 3, NULL, 0, "\xef\xbf\xbd\xef\xbf\xbd/\xef\xbf\xbd/"); /* a surrogate */
    check_pieces("aENDb", 5, stops, 2, "a/");
    check_pieces("aENb", 4, stops, 2, "a/ENb/");
    check_pieces("aEN", 3, stops, 2, "a/EN/");
    check_pieces("a\nb\n\nc", 6, stops, 2, "a/\nb/");
}

/* ---- whole generations ---- */

static const char *model_path(void)
{
    static char path[400];
    outcome out;
    char options[500];
    if (path[0])
        return path;
    snprintf(path, sizeof path, "%s", test_path("run"));
    snprintf(options, sizeof options, "out '%s' steps 20", path);
    run_job(options, 100, &out);
    return path;
}

static sl_options *make_options(const char *text)
{
    sl_options *options;
    int64_t n;
    char copy[1024], *rest = copy;
    const sl_option *table = sl_generate_table(&n);
    CHECK_OK(sl_options_create(table, n, &options));
    CHECK_OK(sl_options_set(options, "model", model_path()));
    if (!strstr(text, "prompt"))
        CHECK_OK(sl_options_set(options, "prompt", "water runs"));
    CHECK_OK(sl_options_set(options, "max-tokens", "40"));
    CHECK_OK(sl_options_set(options, "ignore-end", "true"));
    CHECK_OK(sl_options_set(options, "device", "cpu"));
    CHECK_OK(sl_options_set(options, "costs", "roofline"));
    snprintf(copy, sizeof copy, "%s", text);
    for (char *key; (key = next_word(&rest)) != NULL;)
        CHECK_OK(sl_options_set(options, key, next_word(&rest)));
    return options;
}

typedef struct produced {
    char text[2048], json[8192], stop[32];
    int64_t tokens, prompt;
} produced;

static produced produce(const char *text)
{
    produced out = {.tokens = 0};
    sl_generate *g;
    sl_generated r;
    sl_json_writer w = {0};
    sl_options *options = make_options(text);
    CHECK_OK(sl_generate_create(options, NULL, NULL, &g));
    CHECK_OK(sl_generate_run(g, NULL, NULL, &r));
    CHECK_NEAR(sl_generated_speed(&r) * r.decode_s, r.n_tokens > 1 ? (double) (r.n_tokens - 1) : 0, 1e-6);
    sl_generate_put(g, &r, &w);
    CHECK_OK(sl_text_status(&w.text));
    snprintf(out.text, sizeof out.text, "%s", r.text);
    snprintf(out.json, sizeof out.json, "%s", w.text.data);
    snprintf(out.stop, sizeof out.stop, "%s", r.stop);
    out.tokens = r.n_tokens;
    out.prompt = r.n_prompt;
    sl_text_free(&w.text);
    sl_generate_destroy(g);
    sl_options_destroy(options);
    return out;
}

static void refused(const char *text, sl_status status, const char *message)
{
    sl_generate *g;
    sl_options *options = make_options(text);
    CHECK_FAILS(sl_generate_create(options, NULL, NULL, &g), status);
    CHECK_CONTAINS(sl_error_message(), message);
    sl_options_destroy(options);
}

TEST(the_same_text_within_every_budget)
{
    static const char *const places[] = {"threads 1", "threads 3", "device-mem 90%", "device-mem 75% threads 2",
                                         "device-mem 60% host-mem 64MiB"};
    produced free = produce("temperature 1 seed 5");
    CHECK_I64(free.tokens, 40);
    CHECK_STR(free.stop, "length");
    for (int64_t i = 0; i < SL_COUNT(places); i++) {
        char options[200];
        snprintf(options, sizeof options, "temperature 1 seed 5 %s", places[i]);
        CHECK_STR(produce(options).text, free.text);
    }
    CHECK(strcmp(produce("temperature 1 seed 6").text, free.text) != 0);
}

TEST(prompts)
{
    CHECK_I64(produce("prompt ''").prompt, 1); /* what begins a document */
    CHECK_I64(produce("prompt x").prompt, 2);
    char options[400] = "prompt ";
    for (int i = 0; i < 150; i++)
        snprintf(options + strlen(options), 3, "%c", 'a' + i % 26);
    CHECK_I64(produce(options).prompt, 151); /* several chunks */
    CHECK_I64(produce("prompt-ids 0,119,97").tokens, 40);
    refused("prompt-ids 1,x", SL_E_USAGE, "no list of tokens");
    refused("prompt-ids ''", SL_E_USAGE, "no list of tokens");
}

TEST(what_ends_a_text)
{
    produced all = produce("temperature 0");
    char options[200], part[3] = {all.text[9], all.text[10], 0};
    REQUIRE(strlen(all.text) > 20);
    snprintf(options, sizeof options, "temperature 0 stop '%s'", part);
    produced stopped = produce(options);
    if (part[0] != ' ' && part[1] != ' ') {
        CHECK_STR(stopped.stop, "stop");
        CHECK(strlen(stopped.text) <= 9 && strncmp(stopped.text, all.text, strlen(stopped.text)) == 0);
    }
    CHECK_STR(produce("temperature 0 stop 'not in it'").text, all.text);
    sl_generate *g;
    sl_generated r;
    sl_options *o = make_options("");
    CHECK_OK(sl_generate_create(o, NULL, NULL, &g));
    sl_generate_request_stop(g);
    CHECK_OK(sl_generate_run(g, NULL, NULL, &r));
    CHECK_STR(r.stop, "interrupted");
    CHECK_I64(r.n_tokens, 0);
    sl_generate_destroy(g);
    sl_options_destroy(o);
}

/* GPT-2 has learned 256 positions, and without --ignore-end its token 2 ends a text. */
TEST(learned_positions)
{
    const greedy *g = greedy_read("gpt2");
    char options[1400], ids[1200] = "";
    for (int i = 0; i < 250; i++)
        snprintf(ids + strlen(ids), 6, "%s%d", i ? "," : "", 3 + i % 90);
    snprintf(options, sizeof options, "model '%s' prompt-ids %s max-tokens 100", g->folder, ids);
    produced last = produce(options);
    CHECK_I64(last.tokens, 6);
    CHECK_STR(last.text, "");
    CHECK_STR(last.stop, "length");
    snprintf(options, sizeof options, "model '%s' prompt-ids %s,1,1,1,1,1,1", g->folder, ids);
    refused(options, SL_E_USAGE, "256 positions");
    snprintf(options, sizeof options, "model '%s' prompt-ids 5 ignore-end false max-tokens 250 temperature 100 top-p 1",
             g->folder);
    CHECK_STR(produce(options).stop, "end");
    snprintf(options, sizeof options, "model '%s' prompt text", g->folder);
    refused(options, SL_E_USAGE, "--prompt-ids");
}

TEST(refusals)
{
    refused("model byte-test", SL_E_USAGE, "no weights");
    refused("max-tokens 0", SL_E_USAGE, "--max-tokens");
    refused("temperature -1", SL_E_USAGE, "--temperature");
    refused("top-p 0", SL_E_USAGE, "--top-p");
    refused("stop 'a||b'", SL_E_USAGE, "empty text");
    refused("device-mem 50kB", SL_E_DOES_NOT_FIT, "use a shorter text: a shorter --prompt, or fewer --max-tokens");
    CHECK(!strstr(sl_error_message(), "--seqlen") && !strstr(sl_error_message(), "--chunk-tokens"));
    refused("device-mem 140kB host-mem 1MiB max-tokens 20000", SL_E_DOES_NOT_FIT, "fewer --max-tokens");
    CHECK_CONTAINS(produce("").json, "\"stop\":\"length\"");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(pieces);
    RUN(the_same_text_within_every_budget);
    RUN(prompts);
    RUN(what_ends_a_text);
    RUN(learned_positions);
    RUN(refusals);
    return test_end();
}
