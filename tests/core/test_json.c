/* JSON: what is accepted, what is refused and where, and that what is written reads back. */
#include "core/json.h"

#include <time.h>

#include "core/fault.h"
#include "test.h"

static sl_region *region;

static sl_status parse(const char *text, const sl_json **root)
{
    sl_region_destroy(region);
    region = NULL;
    SL_TRY(sl_region_create(&region));
    return sl_json_parse(region, "t.json", text, strlen(text), root);
}

TEST(accepted)
{
    static const char *const good[] = {
        "null",
        " true ",
        "false",
        "0",
        "-0",
        "-1.5e+3",
        "1E9",
        "0.25",
        "123456789012345678901234567890",
        "\"\"",
        "[]",
        "{}",
        "[1,2,[3,[4]]]",
        "{\"a\":1,\"b\":{\"a\":2}}",
        "\t\r\n[ 1 , 2 ]\n",
        "\"\\u00e9\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "\"\\ud83d\\ude00\"",
        "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"",
        "{\"\":0}",
        "\"\\u0000\"",
        "1e-400",
    };
    for (int64_t i = 0; i < SL_COUNT(good); i++) {
        const sl_json *root = NULL;
        sl_status status = parse(good[i], &root);
        CHECK_MSG(status == SL_OK && root, "%s refused: %s", good[i], sl_error_message());
    }
}

TEST(refused)
{
    static const char *const bad[] = {
        "",
        " ",
        "nul",
        "True",
        "+1",
        "01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "-",
        "--1",
        "0x10",
        "NaN",
        "Infinity",
        "1e400",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\ud800\"",
        "\"\\ud800x\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\n\"",
        "\"\x01\"",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xe2\x82\"",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "]",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,}",
        "{a:1}",
        "{1:1}",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1,\"a\":2}",
        "{\"\\u0000\":1}",
        "1 2",
        "[] []",
        "// c\n1",
        "'a'",
        "\xef\xbb\xbf{}",
    };
    for (int64_t i = 0; i < SL_COUNT(bad); i++) {
        const sl_json *root = NULL;
        sl_status status = parse(bad[i], &root);
        CHECK_MSG(status == SL_E_FORMAT && !root, "%s accepted", bad[i]);
        CHECK_CONTAINS(sl_error_message(), "t.json:");
    }
    static const char *const numbers[] = {"+1", "01", "1.", ".5", "1e", "1e+", "-", "--1"};
    for (int64_t i = 0; i < SL_COUNT(numbers); i++) {
        const sl_json *root = NULL;
        CHECK_FAILS(parse(numbers[i], &root), SL_E_FORMAT);
        CHECK_CONTAINS(sl_error_message(),
                       numbers[i][0] == '+' || numbers[i][0] == '.' ? "t.json:1" : "not a JSON number");
    }
}

TEST(depth_is_limited)
{
    char text[200];
    const sl_json *root;
    for (int depth = 64; depth <= 65; depth++) {
        memset(text, '[', (size_t) depth);
        memset(text + depth, ']', (size_t) depth);
        text[2 * depth] = 0;
        if (depth == 64)
            CHECK_OK(parse(text, &root));
        else
            CHECK_FAILS(parse(text, &root), SL_E_FORMAT);
    }
    sl_text open = {0};
    for (int i = 0; i < 100000; i++)
        sl_text_append(&open, "[{\"a\":", 6);
    CHECK_FAILS(parse(open.data, &root), SL_E_FORMAT);
    sl_text_free(&open);
}

TEST(values_and_places)
{
    const sl_json *root;
    CHECK_OK(parse("{\n  \"n\": -42,\n  \"x\": 2.5, \"s\": \"a\\u0041\\u00e9\", \"t\": [true, null],\n"
                   "  \"big\": 9223372036854775808, \"most\": -9223372036854775808\n}",
                   &root));
    CHECK_I64(root->count, 6);
    const sl_json *n = sl_json_get(root, "n");
    REQUIRE(n && n->is_integer);
    CHECK_I64(n->integer, -42);
    CHECK_I64(n->line, 2);
    CHECK_I64(n->column, 8);
    CHECK(sl_json_get(root, "x")->number == 2.5 && !sl_json_get(root, "x")->is_integer);
    CHECK_STR(sl_json_get(root, "s")->string, "aA\xc3\xa9");
    CHECK(!sl_json_get(root, "big")->is_integer && sl_json_get(root, "big")->number == 9223372036854775808.0);
    CHECK(sl_json_get(root, "most")->integer == INT64_MIN);
    CHECK(sl_json_get(root, "absent") == NULL && sl_json_get(n, "n") == NULL && sl_json_get(NULL, "n") == NULL);
    const sl_json *t = sl_json_get(root, "t");
    CHECK(t->count == 2 && t->child->boolean && t->child->next->kind == SL_JSON_NULL && !t->child->next->next);
    CHECK_FAILS(parse("{\n \"a\": 1,\n \"b\": tru }", &root), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "t.json:3:7:");
}

TEST(typed_lookups)
{
    const sl_json *root;
    int64_t i = 0;
    double f = 0;
    bool b = false;
    const char *s = NULL;
    CHECK_OK(parse("{\"i\":7,\"f\":1.5,\"b\":true,\"s\":\"x\",\"z\":null,\"nul\":\"a\\u0000b\"}", &root));
    CHECK_OK(sl_json_i64("c", root, "i", &i));
    CHECK_I64(i, 7);
    CHECK_OK(sl_json_i64_or("c", root, "z", 9, &i));
    CHECK_I64(i, 9);
    CHECK_OK(sl_json_f64_or("c", root, "i", 0, &f));
    CHECK(f == 7);
    CHECK_OK(sl_json_bool_or("c", root, "b", false, &b));
    CHECK(b);
    CHECK_OK(sl_json_string_or("c", root, "absent", "other", &s));
    CHECK_STR(s, "other");
    CHECK_FAILS(sl_json_i64("c", root, "absent", &i), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "\"absent\" is missing");
    CHECK_FAILS(sl_json_i64("c", root, "z", &i), SL_E_FORMAT);
    CHECK_FAILS(sl_json_i64_or("c", root, "f", 0, &i), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "\"f\" should be a whole number");
    CHECK_FAILS(sl_json_f64_or("c", root, "s", 0, &f), SL_E_FORMAT);
    CHECK_FAILS(sl_json_bool_or("c", root, "i", 0, &b), SL_E_FORMAT);
    CHECK_FAILS(sl_json_string_or("c", root, "b", NULL, &s), SL_E_FORMAT);
    CHECK_FAILS(sl_json_string_or("c", root, "nul", NULL, &s), SL_E_FORMAT);
}

/* Duplicates are found among thousands of keys, without quadratic time. */
TEST(many_keys)
{
    const sl_json *root;
    for (int twice = 0; twice < 2; twice++) {
        sl_text text = {0};
        sl_text_append(&text, "{", 1);
        for (int i = 0; i < 200000; i++)
            sl_text_printf(&text, "\"k%d\":%d,", i, i);
        sl_text_printf(&text, "\"k%d\":0}", twice ? 77777 : 200000);
        clock_t start = clock(); /* processor time: other programs are no business of this test's */
        if (twice)
            CHECK_FAILS(parse(text.data, &root), SL_E_FORMAT);
        else
            CHECK_OK(parse(text.data, &root));
        double took = (double) (clock() - start) / CLOCKS_PER_SEC;
        CHECK_MSG(took < 5, "%.1f s for 200,000 keys", took);
        sl_text_free(&text);
    }
}

TEST(written_reads_back)
{
    sl_json_writer w = {.depth = 0};
    static const double numbers[] = {0, -0.0, 0.1, 1.0 / 3, 1e300, 5e-324, 123456789.125, -2.5e-10, 1e15, 1e16};
    sl_json_begin_object(&w, NULL);
    sl_json_put_i64(&w, "min", INT64_MIN);
    sl_json_put_string(&w, "quote\"d", "a\"\\\n\t\x01\x7f\xc3\xa9");
    sl_json_put_f64(&w, "nan", NAN);
    sl_json_put_string(&w, "none", NULL);
    sl_json_put_bool(&w, "yes", true);
    sl_json_begin_array(&w, "numbers");
    for (int64_t i = 0; i < SL_COUNT(numbers); i++)
        sl_json_put_f64(&w, NULL, numbers[i]);
    sl_json_end_array(&w);
    sl_json_begin_array(&w, "nested");
    sl_json_begin_object(&w, NULL);
    sl_json_end_object(&w);
    sl_json_begin_array(&w, NULL);
    sl_json_end_array(&w);
    sl_json_put_null(&w, NULL);
    sl_json_end_array(&w);
    sl_json_end_object(&w);
    CHECK_OK(sl_text_status(&w.text));
    CHECK_CONTAINS(w.text.data, "\"nested\":[{},[],null]}");
    CHECK_CONTAINS(w.text.data, "\"nan\":null,\"none\":null,\"yes\":true,");
    const sl_json *root;
    CHECK_OK(parse(w.text.data, &root));
    CHECK(sl_json_get(root, "min")->integer == INT64_MIN);
    CHECK_STR(sl_json_get(root, "quote\"d")->string, "a\"\\\n\t\x01\x7f\xc3\xa9");
    const sl_json *item = sl_json_get(root, "numbers")->child;
    for (int64_t i = 0; i < SL_COUNT(numbers); i++, item = item->next)
        CHECK_MSG(item->number == numbers[i] && !signbit(item->number) == !signbit(numbers[i]),
                  "%.17g came back as %.17g", numbers[i], item->number);
    sl_json_writer again = {.depth = 0};
    sl_json_put_value(&again, NULL, root);
    CHECK_OK(sl_text_status(&again.text));
    CHECK_STR(again.text.data, w.text.data);
    sl_text_free(&again.text);
    sl_text_free(&w.text);
}

/* A number that is read as no integer is none when it is written, so that typed readers take both alike. */
TEST(reals_stay_reals)
{
    static const double numbers[] = {30, -0.0, 0, 1e-5, 1e20, NAN, 0.5};
    const sl_json *root;
    sl_json_writer w = {.depth = 0}, again = {.depth = 0};
    sl_json_begin_array(&w, NULL);
    for (int64_t i = 0; i < SL_COUNT(numbers); i++)
        sl_json_put_real(&w, NULL, numbers[i]);
    sl_json_put_i64(&w, NULL, 30);
    sl_json_end_array(&w);
    CHECK_OK(sl_text_status(&w.text));
    CHECK_STR(w.text.data, "[30.0,-0.0,0.0,1e-05,1e+20,null,0.5,30]");
    CHECK_OK(parse(w.text.data, &root));
    sl_json_put_value(&again, NULL, root);
    CHECK_OK(sl_text_status(&again.text));
    CHECK_STR(again.text.data, w.text.data);
    sl_text_free(&again.text);
    sl_text_free(&w.text);
}

/* A path may hold any bytes; what was written must be readable all the same. */
TEST(other_bytes_are_replaced)
{
    sl_json_writer w = {.depth = 0};
    const sl_json *root;
    sl_json_begin_object(&w, NULL);
    sl_json_put_string(&w, "path", "caf\xe9/\xc3\xa9\xc3");
    sl_json_end_object(&w);
    CHECK_OK(sl_text_status(&w.text));
    CHECK_OK(parse(w.text.data, &root));
    CHECK_STR(sl_json_get(root, "path")->string, "caf\xef\xbf\xbd/\xc3\xa9\xef\xbf\xbd");
    sl_text_free(&w.text);
}

TEST(every_failed_allocation)
{
    const sl_json *root;
    sl_text object = {0};
    for (int i = 0; i < 70; i++) /* the table of its keys grows twice */
        sl_text_printf(&object, "%c\"key %d\":%d", i ? ',' : '{', i, i);
    sl_text_printf(&object, ",\"s\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]}");
    REQUIRE(sl_text_status(&object) == SL_OK);
    const char *text = object.data;
    int64_t k = 1;
    for (;; k++) {
        sl_fault_arm(SL_FAULT_ALLOC, k);
        sl_status status = parse(text, &root);
        sl_fault_arm(SL_FAULT_ALLOC, 0);
        if (status == SL_OK)
            break;
        CHECK(status == SL_E_MEMORY);
    }
    CHECK(k > 4);
    sl_text_free(&object);
}

TEST(indented)
{
    sl_json_writer w = {.indent = true};
    sl_json_begin_object(&w, NULL);
    sl_json_put_i64(&w, "a", 1);
    sl_json_begin_array(&w, "b");
    sl_json_put_bool(&w, NULL, true);
    sl_json_end_array(&w);
    sl_json_begin_object(&w, "c");
    sl_json_end_object(&w);
    sl_json_end_object(&w);
    CHECK_OK(sl_text_status(&w.text));
    CHECK_STR(w.text.data, "{\n  \"a\": 1,\n  \"b\": [\n    true\n  ],\n  \"c\": {}\n}");
    sl_text_free(&w.text);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(accepted);
    RUN(refused);
    RUN(depth_is_limited);
    RUN(values_and_places);
    RUN(typed_lookups);
    RUN(many_keys);
    RUN(written_reads_back);
    RUN(reals_stay_reals);
    RUN(indented);
    RUN(other_bytes_are_replaced);
    RUN(every_failed_allocation);
    sl_region_destroy(region);
    CHECK_I64(sl_heap_bytes(), 0);
    return test_end();
}
