/* Chat templates: texts and counted ranges against transformers (tests/golden/chat_templates.py), where text comes from, and how
 * templates fail. */
#include "test.h"

#include "core/file.h"
#include "text/chat.h"
#include "text/chat_internal.h"
#include "text/tokenizer.h"

enum { MOST_SPECIALS = 200 };

/* ---- against transformers ---- */

typedef struct golden {
    char *text;
    sl_region *region;
    const sl_json *chats, *templates;
} golden;

static golden read_golden(void)
{
    golden g = {0};
    size_t length;
    const sl_json *root;
    CHECK_OK(sl_file_read_all(SL_SOURCE_DIR "/tests/golden/chats/golden.json", 1 << 24, &g.text, &length));
    CHECK_OK(sl_region_create(&g.region));
    CHECK_OK(sl_json_parse(g.region, "golden.json", g.text, length, &root));
    g.chats = sl_json_get(root, "chats");
    g.templates = sl_json_get(root, "templates");
    REQUIRE(g.chats && g.templates && g.templates->count > 10);
    return g;
}

/* Python's rules in small: operators, slices, filters, white space around tags. */
static sl_status render_snippet(const sl_json *variables, const char *source, size_t length, sl_region *region,
                                sl_jinja_output *out)
{
    sl_jinja *template_;
    sl_jinja_run *run;
    SL_TRY(sl_jinja_parse("snippet", source, length, &template_));
    sl_status status = sl_jinja_begin(template_, region, 1721995200, &run);
    for (const sl_json *v = variables ? variables->child : NULL; v && status == SL_OK; v = v->next)
        status = sl_jinja_set_json(run, v->key, v, 2 << SL_JINJA_SOURCE_SHIFT);
    if (status == SL_OK)
        status = sl_jinja_finish(run, out);
    sl_jinja_destroy(template_);
    return status;
}

static void free_golden(golden *g)
{
    sl_region_destroy(g->region);
    sl_free(g->text);
}

static const sl_json *nth(const sl_json *array, int64_t index)
{
    const sl_json *item = array->child;
    while (item && index-- > 0)
        item = item->next;
    REQUIRE(item);
    return item;
}

static sl_chat *parse_member(const sl_json *entry, const char *member)
{
    const sl_json *source = sl_json_get(entry, member);
    sl_chat *chat;
    CHECK_OK(sl_chat_parse(sl_json_get(entry, "name")->string, source->string, source->length,
                           sl_json_get(entry, "bos")->string, sl_json_get(entry, "eos")->string, &chat));
    return chat;
}

static sl_chat_request request_of(const golden *g, const sl_json *entry)
{
    const sl_json *chat = nth(g->chats, sl_json_get(entry, "chat")->integer);
    return (sl_chat_request){.messages = sl_json_get(chat, "messages"),
                             .tools = sl_json_get(chat, "tools"),
                             .add_generation_prompt = sl_json_get(entry, "prompt")->boolean};
}

/* Texts of special tokens, where the template or a trusted role wrote them, as a tokenizer would find them. */
static int64_t find_specials(const sl_jinja_output *o, const sl_json *texts, chat_range out[MOST_SPECIALS])
{
    int64_t count = 0;
    char *own = calloc(o->length + 1, 1);
    REQUIRE(own);
    for (int64_t i = 0, at = 0; i < o->span_count; i++)
        for (; at < (int64_t) o->spans[i].end; at++)
            own[at] = sl_jinja_source(o->spans[i].mark) == 0 || (o->spans[i].mark & SL_JINJA_TRUSTED);
    for (size_t at = 0; at < o->length;) {
        size_t length = 0;
        for (const sl_json *t = texts->child; t; t = t->next)
            if (t->length > length && o->length - at >= t->length && memcmp(o->text + at, t->string, t->length) == 0 &&
                memchr(own + at, 0, t->length) == NULL)
                length = t->length;
        REQUIRE(count < MOST_SPECIALS);
        if (length)
            out[count++] = (chat_range){at, at + length};
        at += length ? length : 1;
    }
    free(own);
    return count;
}

static void check_ranges(const sl_chat *chat, const sl_chat_request *request, const sl_json *specials,
                         const char *label, const sl_json *want)
{
    sl_region *region;
    sl_jinja_output output;
    chat_range places[MOST_SPECIALS], *ranges;
    int64_t count;
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_chat_render_part(chat, request, INT64_MAX, request->add_generation_prompt, region, &output));
    int64_t special_count = find_specials(&output, specials, places);
    CHECK_OK(
        sl_chat_ranges(chat, request, &output, SL_TRAIN_ON_ASSISTANT, places, special_count, region, &ranges, &count));
    bool same = count == want->count;
    for (int64_t i = 0; i < SL_MIN(count, want->count); i++) {
        const sl_json *pair = nth(want, i);
        same = same && (int64_t) ranges[i].begin == pair->child->integer &&
               (int64_t) ranges[i].end == pair->child->next->integer;
        CHECK_MSG((int64_t) ranges[i].begin == pair->child->integer &&
                      (int64_t) ranges[i].end == pair->child->next->integer,
                  "%s: range %d is [%.*s], not [%.*s]", label, (int) i, (int) (ranges[i].end - ranges[i].begin),
                  output.text + ranges[i].begin, (int) (pair->child->next->integer - pair->child->integer),
                  output.text + pair->child->integer);
    }
    CHECK_MSG(count == want->count, "%s: %d ranges, not %d", label, (int) count, (int) want->count);
    /* The last answer alone is the last range, or the last blocks of it. */
    CHECK_OK(
        sl_chat_ranges(chat, request, &output, SL_TRAIN_ON_COMPLETION, places, special_count, region, &ranges, &count));
    if (want->count > 0 && same) {
        CHECK_I64(count, 1);
        CHECK_I64(ranges[0].begin, nth(want, want->count - 1)->child->integer);
    }
    sl_region_destroy(region);
}

TEST(renders_as_transformers)
{
    golden g = read_golden();
    int texts = 0, refused = 0;
    for (const sl_json *t = g.templates->child; t; t = t->next) {
        static const char *const forms[] = {"plain", "marked"};
        for (int form = 0; form < 2; form++) {
            sl_chat *chat = parse_member(t, forms[form]);
            for (const sl_json *c = sl_json_get(t, "cases")->child; c; c = c->next) {
                char label[100];
                const sl_chat_request request = request_of(&g, c);
                const sl_json *want = sl_json_get(c, "text");
                snprintf(label, sizeof label, "%s, %s, %s", sl_json_get(t, "name")->string, forms[form],
                         sl_json_get(nth(g.chats, sl_json_get(c, "chat")->integer), "name")->string);
                sl_text text = {0};
                sl_status status = sl_chat_render(chat, &request, &text);
                CHECK_MSG((status == SL_OK) == (want != NULL), "%s: %s", label, sl_error_message());
                if (status == SL_OK && want) {
                    CHECK_MSG(text.length == want->length && memcmp(text.data, want->string, want->length) == 0,
                              "%s: \"%s\", not \"%s\"", label, text.data, want->string);
                    texts++;
                } else {
                    refused++;
                }
                sl_text_free(&text);
            }
            sl_chat_close(chat);
        }
    }
    CHECK_MSG(texts > 200 && refused > 10, "%d texts, %d refused", texts, refused);
    free_golden(&g);
}

/* A template without marks gives the ranges that transformers finds with marks. */
TEST(counts_as_transformers)
{
    golden g = read_golden();
    for (const sl_json *t = g.templates->child; t; t = t->next) {
        static const char *const forms[] = {"plain", "marked"};
        for (int form = 0; form < 2; form++) {
            sl_chat *chat = parse_member(t, forms[form]);
            for (const sl_json *c = sl_json_get(t, "cases")->child; c; c = c->next) {
                const sl_chat_request request = request_of(&g, c);
                char label[100];
                snprintf(label, sizeof label, "%s, %s, %s", sl_json_get(t, "name")->string, forms[form],
                         sl_json_get(nth(g.chats, sl_json_get(c, "chat")->integer), "name")->string);
                if (sl_json_get(c, "counted"))
                    check_ranges(chat, &request, sl_json_get(t, "specials"), label, sl_json_get(c, "counted"));
            }
            sl_chat_close(chat);
        }
    }
    free_golden(&g);
}

TEST(computes_as_python)
{
    golden g = read_golden();
    const sl_json *root;
    CHECK_OK(sl_json_parse(g.region, "golden.json", g.text, strlen(g.text), &root));
    int texts = 0, refused = 0;
    for (const sl_json *s = sl_json_get(root, "snippets")->child; s; s = s->next) {
        const sl_json *source = sl_json_get(s, "source"), *want = sl_json_get(s, "text");
        sl_jinja_output out;
        sl_status status =
            render_snippet(sl_json_get(root, "variables"), source->string, source->length, g.region, &out);
        CHECK_MSG((status == SL_OK) == (want != NULL), "%s: %s", source->string, sl_error_message());
        if (status == SL_OK && want)
            CHECK_MSG(out.length == want->length && memcmp(out.text, want->string, out.length) == 0,
                      "%s\n gives \"%s\"\n  not  \"%s\"", source->string, out.text, want->string);
        texts += want != NULL;
        refused += want == NULL;
    }
    CHECK_MSG(texts > 40 && refused > 15, "%d texts, %d refused", texts, refused);
    free_golden(&g);
}

/* ---- tokens ---- */

/* Of the template's text, special tokens stand for none: all others for the rest of it. */
static void check_bytes(const sl_chat *chat, const sl_chat_request *request, const sl_tokenizer *t,
                        const sl_tokens *ids, const sl_byte_counts *bytes, const char *label)
{
    sl_text rendered = {0};
    size_t sum = 0, length;
    CHECK_OK(sl_chat_render(chat, request, &rendered));
    REQUIRE(bytes->each.length == (size_t) ids->count);
    for (int64_t i = 0; i < ids->count; i++) {
        const char *piece = sl_tokenizer_piece(t, ids->ids[i], &length);
        if (piece && sl_tokenizer_is_special(t, ids->ids[i])) {
            CHECK(bytes->each.data[i] == 0);
            sum += length;
        }
        sum += (unsigned char) bytes->each.data[i];
    }
    CHECK_MSG(!bytes->unknown && sum == rendered.length, "%s: %zu bytes of %zu%s", label, sum, rendered.length,
              bytes->unknown ? ", unknown" : "");
    sl_text_free(&rendered);
}

static void check_tokens(const sl_chat *chat, sl_encoder *encoder, const sl_chat_request *request, const sl_json *want,
                         const char *label)
{
    const sl_json *ids = sl_json_get(want, "ids"), *mask = sl_json_get(want, "mask");
    sl_tokens tokens = {0};
    sl_text counted = {0}, got = {0};
    CHECK_OK(sl_chat_encode(chat, encoder, request, SL_TRAIN_ON_ASSISTANT, &tokens, &counted, NULL));
    for (int64_t i = 0; i < tokens.count; i++)
        sl_text_printf(&got, "%s%d", i ? " " : "", tokens.ids[i]);
    CHECK_MSG(strcmp(got.data, ids->string) == 0, "%s: ids %s, not %s", label, got.data, ids->string);
    CHECK_I64(counted.length, tokens.count);
    for (size_t i = 0; i < counted.length; i++)
        counted.data[i] += '0';
    if (mask)
        CHECK_MSG(strcmp(counted.data, mask->string) == 0, "%s: counts %s, not %s", label, counted.data, mask->string);
    sl_text_free(&counted);
    sl_byte_counts bytes = {.unknown = false};
    const sl_tokens before = tokens; /* the same ones again */
    CHECK_OK(sl_chat_encode(chat, encoder, request, SL_TRAIN_ON_ALL, &tokens, &counted, &bytes));
    CHECK_U64(counted.length, tokens.count / 2);
    const sl_tokens again = {tokens.ids + before.count, tokens.count - before.count, 0};
    check_bytes(chat, request, sl_encoder_tokenizer(encoder), &again, &bytes, label);
    sl_text_free(&bytes.each);
    CHECK(memchr(counted.data, 0, counted.length) == NULL);
    sl_tokens_free(&tokens);
    sl_text_free(&counted);
    sl_text_free(&got);
}

/* Ids and masks of apply_chat_template, where special tokens in messages are text; by marks, and without them. */
TEST(encodes_as_transformers)
{
    static const char *const names[] = {"bytes", "spaces"};
    golden g = read_golden();
    int masks = 0, sanitized = 0;
    for (int64_t n = 0; n < SL_COUNT(names); n++) {
        char path[300];
        sl_tokenizer *tokenizer;
        sl_encoder *encoder;
        snprintf(path, sizeof path, SL_SOURCE_DIR "/tests/golden/chats/%s", names[n]);
        CHECK_OK(sl_tokenizer_open(path, &tokenizer));
        CHECK_OK(sl_encoder_create(tokenizer, &encoder));
        for (const sl_json *t = g.templates->child; t; t = t->next) {
            sl_chat *plain = parse_member(t, "plain"), *marked = parse_member(t, "marked");
            for (const sl_json *c = sl_json_get(t, "cases")->child; c; c = c->next) {
                const sl_json *want = sl_json_get(c, names[n]);
                const sl_chat_request request = request_of(&g, c);
                char label[100];
                snprintf(label, sizeof label, "%s, %s, %s", sl_json_get(t, "name")->string, names[n],
                         sl_json_get(nth(g.chats, sl_json_get(c, "chat")->integer), "name")->string);
                if (!want)
                    continue;
                check_tokens(plain, encoder, &request, want, label);
                check_tokens(marked, encoder, &request, want, label);
                masks += sl_json_get(want, "mask") != NULL;
                sanitized += sl_json_get(want, "mask") == NULL;
            }
            sl_chat_close(plain);
            sl_chat_close(marked);
        }
        sl_encoder_destroy(encoder);
        sl_tokenizer_close(tokenizer);
    }
    CHECK_MSG(masks > 130 && sanitized > 10, "%d masks, %d sanitized", masks, sanitized);
    free_golden(&g);
}

typedef struct encoded {
    sl_region *region;
    sl_tokens tokens;
    sl_text counted, text; /* `text`: the counted tokens decoded, '|' between runs */
} encoded;

/* Encodes a chat given as JSON with one of the small tokenizers (or another in `path`). */
static sl_status encode_json(const char *source, const char *json, const char *path, sl_train_on train_on, encoded *e)
{
    sl_chat *chat;
    sl_tokenizer *tokenizer;
    sl_encoder *encoder;
    const sl_json *root;
    *e = (encoded){0};
    CHECK_OK(sl_region_create(&e->region));
    CHECK_OK(sl_json_parse(e->region, "chat", json, strlen(json), &root));
    CHECK_OK(sl_chat_parse("template", source, strlen(source), "", "<|im_end|>", &chat));
    CHECK_OK(sl_tokenizer_open(path ? path : SL_SOURCE_DIR "/tests/golden/chats/bytes", &tokenizer));
    CHECK_OK(sl_encoder_create(tokenizer, &encoder));
    const sl_chat_request request = {.messages = sl_json_get(root, "messages"),
                                     .variables = sl_json_get(root, "variables")};
    sl_status status = sl_chat_encode(chat, encoder, &request, train_on, &e->tokens, &e->counted, NULL);
    for (int64_t i = 0, from = 0; i <= e->tokens.count && status == SL_OK; i++) {
        if (i < e->tokens.count && e->counted.data[i])
            continue;
        if (i > from) {
            if (e->text.length)
                sl_text_append(&e->text, "|", 1);
            CHECK_OK(sl_decode(tokenizer, e->tokens.ids + from, i - from, false, &e->text));
        }
        from = i + 1;
    }
    if (!e->text.data)
        sl_text_append(&e->text, "", 0);
    sl_encoder_destroy(encoder);
    sl_tokenizer_close(tokenizer);
    sl_chat_close(chat);
    return status;
}

static void free_encoded(encoded *e)
{
    sl_tokens_free(&e->tokens);
    sl_text_free(&e->counted);
    sl_text_free(&e->text);
    sl_region_destroy(e->region);
}

static void check_counted(const char *source, const char *json, sl_train_on train_on, const char *want)
{
    encoded e;
    CHECK_OK(encode_json(source, json, NULL, train_on, &e));
    CHECK_STR(e.text.data, want);
    free_encoded(&e);
}

#define CHATML                                                                                               \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}" \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"

/* What the generation prompt supplies is not counted, and what it leaves to the model is. */
TEST(prompts_are_not_counted)
{
    static const char chat[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": "
        "\"a\"}, {\"role\": \"user\", \"content\": \"r\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}";
    check_counted(CHATML "{% endif %}", chat, SL_TRAIN_ON_ASSISTANT, "a<|im_end|>|b<|im_end|>");
    check_counted(CHATML "{% endif %}", chat, SL_TRAIN_ON_COMPLETION, "b<|im_end|>");
    /* The prompt opens a thought: history has none, or the answer brings its own. */
    check_counted(CHATML "{{ '<think>\\n' }}{% endif %}", chat, SL_TRAIN_ON_ASSISTANT, "a<|im_end|>|b<|im_end|>");
    check_counted(CHATML "{{ '<think>\\n' }}{% endif %}",
                  "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": "
                  "\"<think>\\nhm</think>a\"}]}",
                  SL_TRAIN_ON_ASSISTANT, "hm</think>a<|im_end|>");
    /* An empty thought in front of the last answer: the model's, unless the prompt writes it. */
    static const char thinks[] =
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if loop.last and m.role == 'assistant' %}"
        "{{ '<think></think>' }}{% endif %}{{ m.content + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|im_start|>assistant\\n' }}{% if off is defined and off %}{{ '<think></think>' }}{% endif %}{% endif %}";
    check_counted(thinks, chat, SL_TRAIN_ON_ASSISTANT, "a<|im_end|>|<think></think>b<|im_end|>");
    static const char off[] =
        "{\"variables\": {\"off\": true}, \"messages\": [{\"role\": \"user\", \"content\": \"q\"}, "
        "{\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"r\"}, "
        "{\"role\": \"assistant\", \"content\": \"b\"}]}";
    check_counted(thinks, off, SL_TRAIN_ON_ASSISTANT, "a<|im_end|>|b<|im_end|>");
    /* The prompt opens a thought, the answer begins with other text of the template. */
    check_counted("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{{ 'call: "
                  "' }}{% endif %}"
                  "{{ m.content + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}"
                  "{{ '<|im_start|>assistant\\n<think>' }}{% endif %}",
                  chat, SL_TRAIN_ON_ASSISTANT, "call: a<|im_end|>|call: b<|im_end|>");
    /* A result repeats a part of the call. */
    check_counted("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'tool' %}"
                  "{{ 'of ' + messages[loop.index0 - 1].call + ': ' }}{% elif m.call %}{{ m.call }}{% endif %}"
                  "{{ m.content + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
                  "'<|im_start|>assistant\\n' }}{% endif %}",
                  "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": "
                  "\"\", \"call\": "
                  "\"f\"}, {\"role\": \"tool\", \"content\": \"r\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}",
                  SL_TRAIN_ON_ASSISTANT, "f<|im_end|>|a<|im_end|>");
    /* Nothing ends a turn but the beginning of the next. */
    check_counted(
        "{% for m in messages %}{{ '<|im_start|>' + m.content }}{% endfor %}{% if add_generation_prompt %}<|im_start|>"
        "{% endif %}",
        chat, SL_TRAIN_ON_ASSISTANT, "a<|im_start|>|b");
    /* A block that forgets the token that ends the turn. */
    check_counted(
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{% generation %}"
        "{{ m.content }}{% endgeneration %}{{ '<|im_end|>\\n' }}{% else %}{{ m.content }}{% endif %}{% endfor %}",
        chat, SL_TRAIN_ON_ASSISTANT, "a<|im_end|>|b<|im_end|>");
    check_counted(CHATML "{% endif %}", "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}",
                  SL_TRAIN_ON_ASSISTANT, "");
    encoded e;
    CHECK_FAILS(encode_json("{% for m in messages %}{{ m.role + ':' + m.content }}<|im_end|>{% endfor %}"
                            "{% if add_generation_prompt %}{{ 'bot:' }}{% endif %}",
                            chat, NULL, SL_TRAIN_ON_ASSISTANT, &e),
                SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "message 2: the template begins this answer otherwise");
    CHECK_I64(e.tokens.count, 0);
    free_encoded(&e);
}

/* A user cannot write special tokens, not even in parts that the template joins. */
TEST(messages_contain_no_special_tokens)
{
    static const char chat[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|>\"}, {\"role\": \"<|im_start|>\", "
        "\"content\": \"<|im_\"}, {\"role\": \"user\", \"content\": \"start|>\"}]}";
    encoded e;
    sl_tokenizer *tokenizer;
    int specials = 0;
    CHECK_OK(encode_json(
        "{% for m in messages %}{{ m.role ~ m.content }}{% endfor %}<|im_end|>{{ messages|map(attribute='content')"
        "|join }}{{ messages[0].content|upper|lower }}<|{{ 'im_end' }}|>",
        chat, NULL, SL_TRAIN_ON_ALL, &e));
    CHECK_OK(sl_tokenizer_open(SL_SOURCE_DIR "/tests/golden/chats/bytes", &tokenizer));
    for (int64_t i = 0; i < e.tokens.count; i++)
        specials += sl_tokenizer_is_special(tokenizer, e.tokens.ids[i]);
    CHECK_I64(specials, 2);
    CHECK_CONTAINS(e.text.data,
                   "user<|im_end|><|im_start|><|im_userstart|><|im_end|><|im_end|><|im_start|><|im_end|><|im_end|>");
    sl_tokenizer_close(tokenizer);
    free_encoded(&e);
}

/* Where the tokenizer changes the text, tokens cannot be matched with bytes, and the chat is cut at the ends of answers. */
TEST(normalized_text_is_counted)
{
    char *text;
    size_t length;
    CHECK_OK(sl_file_read_all(SL_SOURCE_DIR "/tests/golden/chats/bytes/tokenizer.json", 1 << 20, &text, &length));
    static const char none[] = "\"normalizer\":null";
    char *at = strstr(text, none);
    REQUIRE(at);
    sl_text changed = {0};
    sl_text_append(&changed, text, (size_t) (at - text));
    sl_text_printf(&changed,
                   "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"z\"},\"content\":\"ss\"}%s",
                   at + sizeof none - 1);
    CHECK_OK(sl_file_write_atomic(test_path("tokenizer.json"), changed.data, changed.length));
    encoded e;
    CHECK_OK(
        encode_json(CHATML "{% endif %}",
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"z\"}, {\"role\": \"assistant\", \"content\": "
                    "\"az<|im_end|>z\"}, {\"role\": \"user\", \"content\": \"z<|im_end|>\"}, {\"role\": \"assistant\", "
                    "\"content\": "
                    "\"zb\"}]}",
                    test_dir(), SL_TRAIN_ON_ASSISTANT, &e));
    CHECK_STR(e.text.data, "ass<|im_end|>ss<|im_end|>|ssb<|im_end|>");
    free_encoded(&e);
    sl_text_free(&changed);
    sl_free(text);
}

/* ---- a model's folder ---- */

static void check_folder(const char *config, const char *file, const char *want, const char *with_tools)
{
    sl_chat *chat = NULL;
    sl_region *region;
    CHECK_OK(sl_region_create(&region));
    remove(test_path("chat_template.jinja"));
    remove(test_path("tokenizer_config.json"));
    if (config)
        CHECK_OK(sl_file_write_atomic(test_path("tokenizer_config.json"), config, strlen(config)));
    if (file)
        CHECK_OK(sl_file_write_atomic(test_path("chat_template.jinja"), file, strlen(file)));
    sl_status status = sl_chat_open(test_dir(), &chat);
    if (!with_tools) {
        CHECK_I64(status, SL_E_FORMAT);
        CHECK_CONTAINS(sl_error_message(), want);
    } else {
        CHECK_OK(status);
        sl_chat_request request = {0};
        CHECK_OK(sl_json_parse(region, "messages", "[]", 2, &request.messages));
        for (int tools = 0; tools < 2; tools++) {
            sl_text text = {0};
            request.tools = tools ? request.messages : NULL;
            CHECK_OK(sl_chat_render(chat, &request, &text));
            CHECK_STR(text.data, tools ? with_tools : want);
            sl_text_free(&text);
        }
    }
    sl_chat_close(chat);
    sl_region_destroy(region);
}

TEST(folders_hold_templates)
{
    check_folder(
        "{\"chat_template\": \"{{ bos_token }}x{{ eos_token }}\", \"bos_token\": \"<s>\", \"eos_token\": {\"content\": "
        "\"</s>\"}, \"pad_token\": null, \"add_bos_token\": true}",
        NULL, "<s>x</s>", "<s>x</s>");
    check_folder(
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"plain\"}, {\"name\": \"tool_use\", \"template\": "
        "\"tools\"}, {\"name\": \"rag\", \"template\": \"{% nothing\"}]}",
        NULL, "plain", "tools");
    check_folder(
        "{\"chat_template\": \"config\", \"bos_token\": \"<s>\", \"extra_special_tokens\": {\"image_token\": \"<i>\"}}",
        "file{{ bos_token }}{{ image_token }}\n", "file<s><i>", "file<s><i>");
    check_folder("{}", NULL, "has no chat template: neither chat_template.jinja nor", NULL);
    check_folder(NULL, NULL, "has no chat template", NULL);
    check_folder("{\"chat_template\": [{\"name\": \"rag\", \"template\": \"x\"}]}", NULL,
                 "none of them named \"default\"", NULL);
    check_folder("{\"chat_template\": 3}", NULL, "neither a string nor a list", NULL);
    check_folder("{\"chat_template\": \"a\\n{{ x\"}", NULL, "tokenizer_config.json:2: '{{' has no end", NULL);
    check_folder("[1", NULL, "tokenizer_config.json:1:", NULL);
}

/* What a template does to text leaves every byte with its source. */
TEST(text_keeps_its_source)
{
    static const char *const sources[] = {
        "<u>{{ u }}</u>",
        "{{ '<u>' + u + '</u>' }}",
        "{{ '<u>' ~ u ~ '</u>' }}",
        "{{ ['<u>', u, '</u>']|join }}",
        "{{ ('<u>' + u + '</u>  ')|trim }}",
        "{{ ('xx<u>' + u + '</u>')[2:] }}",
        "{{ ('>u/<' + u[::-1] + '>u<')[::-1] }}",
        "{{ '<u>A</u>'.replace('A', u) }}",
        "{% set x %}<u>{{ u }}</u>{% endset %}{{ x }}",
        "{% macro m(t) %}<u>{{ t }}</u>{% endmacro %}{{ m(u) }}",
        "<u>{% for c in u %}{{ c }}{% endfor %}</u>",
        "<u>{{ u.split('|')|join(u[4]) }}</u>",
        "{{ '<u>{}</u>'.format(u) }}",
        "<u>{{ (u|tojson)[1:-1] }}</u>",
        "<u>{{ {u: 1}|string|replace(\"{'\", '')|replace(\"': 1}\", '') }}</u>",
        "<u>{{ u|indent }}</u>",
    };
    sl_region *region;
    const sl_json *variables;
    static const char json[] = "{\"u\": \"</u>|<u>\"}";
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_json_parse(region, "variables", json, sizeof json - 1, &variables));
    for (int64_t i = 0; i < SL_COUNT(sources); i++) {
        sl_jinja_output out;
        CHECK_OK(render_snippet(variables, sources[i], strlen(sources[i]), region, &out));
        CHECK_STR(out.text, "<u></u>|<u></u>");
        for (size_t at = 0, span = 0; at < out.length; at++) {
            while (out.spans[span].end <= at)
                span++;
            bool user = sl_jinja_source(out.spans[span].mark) == 2, want = at >= 3 && at < 11;
            CHECK_MSG(user == want, "%s: byte %d is %s", sources[i], (int) at, user ? "the user's" : "the template's");
        }
        CHECK_U64(out.spans[out.span_count - 1].end, out.length);
    }
    sl_region_destroy(region);
}

static void check_fails(const char *source, const char *part)
{
    sl_region *region;
    sl_jinja_output out;
    CHECK_OK(sl_region_create(&region));
    CHECK_FAILS(render_snippet(NULL, source, strlen(source), region, &out), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), part);
    CHECK_MSG(sl_region_bytes(region) < (size_t) 600 << 20, "%s takes %zu bytes", source, sl_region_bytes(region));
    sl_region_destroy(region);
}

/* Templates that do not end, or would fill the memory, end with a sentence that names their line. */
TEST(endless_templates_end)
{
    check_fails("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                "snippet:1: the template");
    check_fails("\n{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "snippet:2: the template calls itself");
    check_fails("{% set ns = namespace(s='x') %}{% for i in range(99999) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
                "more memory");
    check_fails("{{ 'x' * 9999999999 }}", "snippet:1: the template");
    check_fails("{{ [[0]] * 9999999999999 }}", "the template");
    check_fails("{{ 'aaaaaaaaaaaaaaaa'.replace('a', 'a' * 9999999).replace('a', 'aaaaaaaa' * 99999) }}",
                "the template");
    check_fails("{% set ns = namespace(a=[]) %}{% for i in range(3000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
                "nested too deeply");
    char deep[4000], blocks[8000];
    memset(deep, '(', sizeof deep);
    memcpy(deep, "{{ ", 3);
    deep[sizeof deep - 1] = 0;
    check_fails(deep, "too deeply");
    memset(deep, '-', sizeof deep - 1);
    memcpy(deep, "{{ ", 3);
    check_fails(deep, "levels deep");
    blocks[0] = 0;
    for (int i = 0; i < 500; i++)
        strcat(blocks, "{% if 1 %}");
    check_fails(blocks, "levels deep");
    for (int i = 0; i < 500; i++)
        memcpy(blocks + 3 + 4 * i, "1 + ", 5);
    memcpy(blocks, "{{ ", 3);
    memcpy(blocks + 3 + 4 * 500, "1 }}", 5);
    check_fails(blocks, "levels deep");
}

/* Messages name the file, the line and what is wrong. */
TEST(mistakes_are_named)
{
    check_fails("a\nb{{ x.y }}", "snippet:2: 'x' is undefined");
    check_fails("{{ 'a'|wrap }}", "filter 'wrap' is not supported");
    check_fails("{% include 'x' %}", "no tag 'include'");
    check_fails("{% if a %}\n\n{% endfor %}", "snippet:3: expected {% endif %} for line 1, found endfor");
    check_fails("{{ raise_exception('Only user roles') }}", "the template refuses this chat: Only user roles");
    check_fails("{{ 'ü'|upper }}", "ASCII");
    check_fails("{{ ", "has no end");
    check_fails("{# ", "has no end");
    check_fails("{{ 'x }}", "a string has no end");
    check_fails("\xff", "not UTF-8");
    check_fails("{% break %}", "outside of a loop");
    check_fails("{{ 99999999999999999999 }}", "64 bits");
    check_fails("{{ 9223372036854775807 + 1 }}", "64 bits");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(renders_as_transformers);
    RUN(counts_as_transformers);
    RUN(encodes_as_transformers);
    RUN(prompts_are_not_counted);
    RUN(messages_contain_no_special_tokens);
    RUN(normalized_text_is_counted);
    RUN(folders_hold_templates);
    RUN(computes_as_python);
    RUN(text_keeps_its_source);
    RUN(endless_templates_end);
    RUN(mistakes_are_named);
    return test_end();
}
