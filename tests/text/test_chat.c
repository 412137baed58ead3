/* Chat templates: texts and counted ranges against transformers (tests/golden/chat_templates.py), where text comes from, and how
 * templates fail. */
#include "test.h"

#include "core/file.h"
#include "text/chat.h"
#include "text/chat_internal.h"

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
    RUN(computes_as_python);
    RUN(text_keeps_its_source);
    RUN(endless_templates_end);
    RUN(mistakes_are_named);
    return test_end();
}
