/* The log: levels, whole lines, and an old callback that is never called again. */
#include "core/log.h"

#include <pthread.h>
#include <stdatomic.h>

#include "core/clock.h"
#include "test.h"

typedef struct sink {
    int lines, torn;
    char last[256];
} sink;

static void on_line(void *user, sl_log_level level, const char *message)
{
    sink *s = user;
    s->lines++; /* plain: the log serialises its callback */
    snprintf(s->last, sizeof s->last, "%d:%s", (int) level, message);
    if (strncmp(message, "line ", 5) != 0 || message[strlen(message) - 1] != '.')
        s->torn++;
}

TEST(levels_and_silence)
{
    sink s = {0};
    sl_log_set(on_line, &s, SL_LOG_INFO);
    sl_debug("line %d.", 1);
    CHECK_I64(s.lines, 0);
    sl_info("line %d.", 2);
    CHECK_STR(s.last, "1:line 2.");
    sl_warn("line %d.", 3);
    sl_log(SL_LOG_ERROR, "line %d.", 4);
    CHECK_I64(s.lines, 3);
    sl_log_set(NULL, NULL, SL_LOG_DEBUG);
    sl_log(SL_LOG_ERROR, "line %d.", 5);
    CHECK_I64(s.lines, 3);
}

static void *talk(void *argument)
{
    for (int i = 0; i < 2000; i++)
        sl_info("line %d of %d.", i, *(int *) argument);
    return NULL;
}

TEST(threads_log_whole_lines)
{
    sink s = {0};
    pthread_t threads[4];
    int numbers[4] = {0, 1, 2, 3};
    sl_log_set(on_line, &s, SL_LOG_DEBUG);
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, talk, &numbers[i]) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    sl_log_set(NULL, NULL, SL_LOG_DEBUG);
    CHECK_I64(s.lines, 8000);
    CHECK_I64(s.torn, 0);
}

TEST(clocks)
{
    int64_t last = sl_clock_ns();
    for (int i = 0; i < 1000; i++) {
        int64_t now = sl_clock_ns();
        if (now < last)
            CHECK_MSG(false, "time went back");
        last = now;
    }
    CHECK_NEAR(sl_clock_s(), (double) sl_clock_ns() * 1e-9, 0.5);
    char utc[32];
    sl_clock_utc(utc);
    CHECK_I64(strlen(utc), 20);
    CHECK(utc[4] == '-' && utc[10] == 'T' && utc[19] == 'Z');
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(levels_and_silence);
    RUN(threads_log_whole_lines);
    RUN(clocks);
    return test_end();
}
