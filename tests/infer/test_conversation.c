/* Conversations: a small model that has learned two answers by heart gives them, ends its turns with the token that its template ends them
 * with, and a turn is what reading the whole conversation anew would be, though most of it is not read again. */
#include "infer/generate.h"
#include "text/chat.h"
#include "train/run_job.h"

static char folder[400]; /* model, tokenizer, template */

static void copy(const char *from, const char *to)
{
    char *text, path[700];
    size_t length;
    snprintf(path, sizeof path, "%s/%s", SL_SOURCE_DIR "/tests/golden/chats", from);
    CHECK_OK(sl_file_read_all(path, 1 << 20, &text, &length));
    snprintf(path, sizeof path, "%s/%s", folder, to);
    CHECK_OK(sl_file_write_atomic(path, text, length));
    sl_free(text);
}

/* The template ends a turn with <|im_end|>, which no other file of the folder names. */
static const char *model_path(void)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 128, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 768, \"rms_norm_eps\": 1e-5, "
        "\"max_position_embeddings\": 512, \"rope_theta\": 10000.0, \"tie_word_embeddings\": false}";
    static const char chats[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"ping\"}, {\"role\": \"assistant\", "
        "\"content\": \"It says pong.\"}, {\"role\": \"user\", \"content\": \"and then\"}, "
        "{\"role\": \"assistant\", \"content\": \"Nothing more.\"}]}\n";
    static char path[500];
    char options[1600], config_path[500], data[500];
    sl_text many = {0};
    outcome o;
    if (path[0])
        return path;
    snprintf(folder, sizeof folder, "%s", test_path("folder"));
    CHECK_OK(sl_dir_create(folder));
    copy("bytes/tokenizer.json", "tokenizer.json");
    copy("qwen25.jinja", "chat_template.jinja");
    snprintf(config_path, sizeof config_path, "%s/config.json", folder);
    CHECK_OK(sl_file_write_atomic(config_path, config, sizeof config - 1));
    for (int i = 0; i < 8; i++)
        sl_text_append(&many, chats, sizeof chats - 1);
    snprintf(data, sizeof data, "%s", test_path("chats.jsonl"));
    CHECK_OK(sl_file_write_atomic(data, many.data, many.length));
    sl_text_free(&many);
    snprintf(path, sizeof path, "%s", test_path("run"));
    snprintf(
        options, sizeof options,
        "model '%s' data '%s' cache '%s' seqlen 128 tokens-per-step 256 chunk-tokens 256 steps 160 warmup 4 lr 6e-3 "
        "precision f32 device cpu out '%s'",
        folder, data, test_path("cache"), path);
    test_expect_warnings(TEST_ANY, "every step repeats");
    run_job(options, 160, &o);
    return path;
}

static sl_options *make_options(const char *text)
{
    sl_options *options;
    int64_t n;
    char all[1024], *rest = all;
    const sl_option *table = sl_generate_table(&n);
    CHECK_OK(sl_options_create(table, n, &options));
    CHECK_OK(sl_options_set(options, "model", model_path()));
    CHECK_OK(sl_options_set(options, "chat", "true"));
    CHECK_OK(sl_options_set(options, "temperature", "0"));
    CHECK_OK(sl_options_set(options, "max-tokens", "40"));
    CHECK_OK(sl_options_set(options, "device", "cpu"));
    CHECK_OK(sl_options_set(options, "costs", "roofline"));
    snprintf(all, sizeof all, "%s", text);
    for (char *key; (key = next_word(&rest)) != NULL;)
        CHECK_OK(sl_options_set(options, key, next_word(&rest)));
    return options;
}

static sl_generate *start(const char *text)
{
    sl_generate *g;
    sl_options *o = make_options(text);
    CHECK_OK(sl_generate_create(o, NULL, NULL, &g));
    sl_options_destroy(o);
    return g;
}

static sl_status gather(void *user, const char *text, size_t length)
{
    sl_text_append(user, text, length);
    return SL_OK;
}

TEST(two_turns)
{
    sl_generate *g = start("");
    sl_generated r;
    sl_text seen = {0};
    CHECK_OK(sl_generate_say(g, "ping", gather, &seen, &r));
    CHECK_STR(r.text, "It says pong.");
    CHECK_STR(r.stop, "end");
    CHECK(r.n_read == r.n_prompt);
    const int64_t first = r.n_prompt + r.n_tokens;
    CHECK_OK(sl_generate_say(g, "and then", gather, &seen, &r));
    CHECK_STR(r.text, "Nothing more.");
    CHECK_STR(r.stop, "end");
    CHECK_I64(r.n_prompt - r.n_read, first); /* the first answer was read while it was made */
    CHECK_STR(seen.data, "It says pong.Nothing more.");
    CHECK_FAILS(sl_generate_run(g, NULL, NULL, &r), SL_E_USAGE);
    sl_text_free(&seen);
    sl_generate_destroy(g);
}

/* The tokens of all messages, each "role content" with | between them, and what follows them without a conversation. */
static void whole(const char *messages, const sl_generated *want)
{
    sl_region *region;
    sl_chat *chat;
    sl_tokenizer *tokenizer;
    sl_encoder *encoder;
    sl_tokens tokens = {0};
    sl_chat_request request = {.add_generation_prompt = true};
    sl_text ids = {0};
    sl_options *o = make_options("chat false");
    sl_generate *g;
    sl_generated r;
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_json_parse(region, "messages", messages, strlen(messages), &request.messages));
    CHECK_OK(sl_chat_open(folder, &chat));
    CHECK_OK(sl_tokenizer_open(folder, &tokenizer));
    CHECK_OK(sl_encoder_create(tokenizer, &encoder));
    CHECK_OK(sl_chat_encode(chat, encoder, &request, SL_TRAIN_ON_ALL, &tokens, NULL, NULL));
    CHECK_I64(tokens.count, want->n_prompt);
    for (int64_t i = 0; i < tokens.count; i++)
        sl_text_printf(&ids, "%s%d", i ? "," : "", tokens.ids[i]);
    CHECK_OK(sl_options_set(o, "prompt-ids", ids.data));
    CHECK_OK(sl_generate_create(o, NULL, NULL, &g));
    CHECK_OK(sl_generate_run(g, NULL, NULL, &r));
    for (int64_t i = 0; i < want->n_tokens; i++) /* the template's end of a turn is none without --chat */
        CHECK_I64(r.tokens[i], want->tokens[i]);
    sl_generate_destroy(g);
    sl_options_destroy(o);
    sl_tokens_free(&tokens);
    sl_text_free(&ids);
    sl_encoder_destroy(encoder);
    sl_tokenizer_close(tokenizer);
    sl_chat_close(chat);
    sl_region_destroy(region);
}

/* A question it has not learned, after a system message it does not know, and special tokens that a user wrote. */
TEST(a_turn_is_the_whole_conversation)
{
    sl_generate *g = start("system 'You rhyme.' max-tokens 12");
    sl_generated r;
    char messages[1200], one[400];
    CHECK_OK(sl_generate_say(g, "what \"is\" <|im_end|>?", NULL, NULL, &r));
    snprintf(messages, sizeof messages,
             "[{\"role\":\"system\",\"content\":\"You rhyme.\"},"
             "{\"role\":\"user\",\"content\":\"what \\\"is\\\" <|im_end|>?\"}");
    snprintf(one, sizeof one, "%s]", messages);
    whole(one, &r);
    sl_json_writer w = {0};
    sl_json_put_string(&w, NULL, r.text);
    CHECK_OK(sl_text_status(&w.text));
    CHECK_OK(sl_generate_say(g, "ping", NULL, NULL, &r));
    CHECK(r.n_read < r.n_prompt / 2);
    const size_t at = strlen(messages);
    snprintf(messages + at, sizeof messages - at,
             ",{\"role\":\"assistant\",\"content\":%s},{\"role\":\"user\",\"content\":\"ping\"}]", w.text.data);
    whole(messages, &r);
    sl_text_free(&w.text);
    sl_generate_destroy(g);
}

TEST(one_answer)
{
    sl_generate *g = start("prompt ping");
    sl_generated r;
    sl_json_writer w = {0};
    CHECK_OK(sl_generate_run(g, NULL, NULL, &r));
    CHECK_STR(r.text, "It says pong.");
    CHECK_STR(r.stop, "end");
    sl_generate_put(g, &r, &w);
    CHECK_OK(sl_text_status(&w.text));
    CHECK_CONTAINS(w.text.data, "\"text\":\"It says pong.\"");
    CHECK_FAILS(sl_generate_say(g, "more", NULL, NULL, &r), SL_E_USAGE);
    sl_text_free(&w.text);
    sl_generate_destroy(g);
}

TEST(too_long)
{
    sl_generate *g = start("context 64");
    sl_generated r;
    char longest[400] = "";
    for (int i = 0; i < 60; i++)
        snprintf(longest + strlen(longest), 6, "w%d ", i);
    CHECK_FAILS(sl_generate_say(g, longest, NULL, NULL, &r), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "give a larger --context");
    CHECK_OK(sl_generate_say(g, "ping", NULL, NULL, &r)); /* as if it had not been said */
    CHECK_STR(r.text, "It says pong.");
    sl_generate_destroy(g);
}

static void refused(const char *text, const char *message)
{
    sl_generate *g;
    sl_options *o = make_options(text);
    CHECK_FAILS(sl_generate_create(o, NULL, NULL, &g), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), message);
    sl_options_destroy(o);
}

TEST(refusals)
{
    char options[600];
    refused("chat false system x", "--system is of a conversation");
    refused("chat false context 9", "--context is of a conversation");
    refused("prompt-ids 1,2", "--prompt instead of --prompt-ids");
    refused("prompt x context 9", "leave it out with --prompt");
    refused("context 1", "--context 1 is out of range");
    snprintf(options, sizeof options, "out '%s' steps 1", test_path("bytes"));
    outcome o;
    run_job(options, 1, &o);
    snprintf(options, sizeof options, "model '%s' prompt x", test_path("bytes"));
    refused(options, "--chat needs a model folder with a tokenizer and a chat template");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(two_turns);
    RUN(a_turn_is_the_whole_conversation);
    RUN(one_answer);
    RUN(too_long);
    RUN(refusals);
    return test_end();
}
