/* Any bytes as an event log, a sweep or a bench file; what is read becomes a page that is well formed, a trace that is JSON, and
 * CSV and text without a crash. */
#include <string.h>

#include "core/hash.h"
#include "fuzz/fuzz.h"
#include "report/report.h"
#include "report/wellformed.h"

const char *const sl_fuzz_dictionary[] = {"{\"event\":\"step\",\"loss\":",
                                          "{\"event\":\"run\",",
                                          "{\"event\":\"timeline\",\"first\":0,\"rows\":[",
                                          "[\"compute\",\"matmul\",\"a\",\"forward\",0,0,10,0,10,0]",
                                          "{\"event\":\"places\",\"rows\":[",
                                          "[\"device\",\"activation\",100,0,1]",
                                          "{\"event\":\"end\",\"ops\":[",
                                          "{\"event\":\"cell\",\"cell\":",
                                          "\"columns\":[{\"name\":\"a\",\"unit\":\"GB/s\"}]",
                                          "\"rows\":[[1],[2],[3]]",
                                          "\"unit\":\"GFLOP/s\"",
                                          "\"seconds\":",
                                          "\"hardware\":{\"peak_flops\":1,\"memory_bandwidth\":1}",
                                          "1e308",
                                          "-1",
                                          "null",
                                          "\n",
                                          ",",
                                          "<b>&\\\"",
                                          NULL};

static void check_views(sl_input *input)
{
    sl_text page = {0}, trace = {0}, csv = {0}, text = {0};
    sl_report_page(&page, (const sl_input *const[]){input}, 1);
    FUZZ_REQUIRE(sl_text_status(&page) == SL_OK);
    const char *why = wellformed(page.data);
    if (!why)
        why = finite_numbers(page.data);
    if (why)
        fprintf(stderr, "%s\n", why);
    FUZZ_REQUIRE(!why);
    if (sl_report_trace(&trace, input) == SL_OK) {
        sl_region *region;
        const sl_json *root;
        FUZZ_REQUIRE(sl_region_create(&region) == SL_OK);
        FUZZ_REQUIRE(sl_json_parse(region, "trace", trace.data, trace.length, &root) == SL_OK);
        sl_region_destroy(region);
    }
    sl_report_csv(&csv, input);
    sl_report_terminal(&text, input, 80);
    sl_text_free(&page);
    sl_text_free(&trace);
    sl_text_free(&csv);
    sl_text_free(&text);
}

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    sl_input *input;
    int outcome;
    sl_status status = sl_input_parse("fuzz", (const char *) data, size, &input);
    if (status == SL_OK) {
        check_views(input);
        outcome = input->log ? 1000 + (int) (input->log->n_actions % 100) + 100 * (int) (input->log->n_ops % 10) : 3000;
        for (const sl_grid *grid = input->tables ? input->tables->grids : NULL; grid; grid = grid->next)
            outcome += 1 + (int) (grid->n_rows % 16);
        sl_input_destroy(input);
    } else {
        FUZZ_REQUIRE(status == SL_E_FORMAT && sl_error_message()[0]);
        const char *tail = strrchr(sl_error_message(), ':');
        outcome = tail ? (int) (sl_hash64(tail, strlen(tail), 0) & 0x3ff) : 2;
    }
    FUZZ_REQUIRE(sl_heap_bytes() == 0);
    return outcome;
}
