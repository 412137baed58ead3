/* What a run reports as its memory is what the system has seen: the device's and the host's peak and the process itself, against the
 * resident set's peak of a process of its own, with budgets smaller than the job likes, as large, and ten times as large. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "core/file.h"
#include "core/json.h"
#include "test.h"

/* Two threads on any machine; some 300 MiB. */
static const char *const job[] = {"train",  "--model",           "byte-small", "--data",      "text.txt", "--seqlen",
                                  "256",    "--tokens-per-step", "1024",       "--steps",     "2",        "--threads",
                                  "2",      "--costs",           "roofline",   "--device",    "cpu",      "--quiet",
                                  "--json", "--val-every",       "2",          "--val-steps", "1",        NULL};

/* Runs the job in a process of its own; the peak of its resident set in bytes, as the system counted it. */
static size_t run(const char *budget, const char *out)
{
    const char *args[40] = {SL_BINARY};
    int n = 1;
    for (int i = 0; job[i]; i++)
        args[n++] = job[i];
    args[n++] = "--device-mem", args[n++] = budget, args[n++] = "--out", args[n++] = out;
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        int log = open(test_path("out.log"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (log < 0 || dup2(log, 1) < 0 || chdir(test_dir()) != 0)
            _exit(120);
        execv(SL_BINARY, (char *const *) (uintptr_t) args);
        _exit(121);
    }
    int status;
    struct rusage usage;
    REQUIRE(wait4(child, &status, 0, &usage) == child);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return (size_t) usage.ru_maxrss << 10;
}

static double figure(const sl_json *root, const char *name)
{
    const sl_json *value = sl_json_get(root, name);
    REQUIRE(value && value->kind == SL_JSON_NUMBER);
    return value->number;
}

TEST(reported_as_seen)
{
    static const char *const budgets[] = {"60%", "100%", "1000%"};
    sl_text text = {0};
    for (int i = 0; i < 3000; i++)
        sl_text_printf(&text, "line %d of a text that is long enough for a few steps\n", i);
    CHECK_OK(sl_file_write_atomic(test_path("text.txt"), text.data, text.length));
    sl_text_free(&text);
    for (int64_t i = 0; i < SL_COUNT(budgets); i++) {
        char out[32], *json;
        size_t length;
        sl_region *region;
        const sl_json *root;
        snprintf(out, sizeof out, "run-%d", (int) i);
        double seen = (double) run(budgets[i], out);
        CHECK_OK(sl_file_read_all(test_path("out.log"), 1 << 20, &json, &length));
        char *last = strstr(json, "{\"loss\"");
        REQUIRE(last);
        CHECK_OK(sl_region_create(&region));
        CHECK_OK(sl_json_parse(region, "out.log", last, strlen(last), &root));
        double device = figure(root, "device_peak_bytes"), host = figure(root, "host_peak_bytes"),
               process = figure(root, "process_bytes"), told = device + host + process;
        printf("%5s: %.1f device + %.1f host + %.1f process = %.1f MiB, the system saw %.1f (%+.2f %%)\n", budgets[i],
               device / 1048576, host / 1048576, process / 1048576, told / 1048576, seen / 1048576,
               100 * (told / seen - 1));
        CHECK_MSG(fabs(told - seen) <= 0.01 * seen, "%s: %.0f bytes reported, %.0f seen", budgets[i], told, seen);
        CHECK_MSG(device <= figure(root, "device_budget_bytes"), "%s: %.0f bytes on the device", budgets[i], device);
        CHECK_MSG(device > 100e6, "%s: %.0f bytes are no job to compare", budgets[i], device);
        CHECK_MSG(process < 30e6, "%s: %.0f bytes for the process", budgets[i], process);
        sl_region_destroy(region);
        sl_free(json);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("a sanitizer's own memory hides the program's");
#endif
    RUN(reported_as_seen);
    return test_end();
}
