/* The word that was meant, and none where nothing is near. */
#include "core/suggest.h"
#include "test.h"

static const char *meant(const char *word)
{
    static const char *const known[] = {"train", "plan", "init", "models", "system", "bench", "report", "device-mem"};
    sl_suggestion s = {.word = word};
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        sl_suggest(&s, known[i]);
    return sl_suggested(&s);
}

TEST(near)
{
    CHECK_STR(meant("trian"), "train"); /* swapped */
    CHECK_STR(meant("tran"), "train");  /* left out */
    CHECK_STR(meant("plann"), "plan");  /* once too often */
    CHECK_STR(meant("benxh"), "bench"); /* another one */
    CHECK_STR(meant("sys"), "system");  /* the beginning */
    CHECK_STR(meant("MODELS"), "models");
    CHECK_STR(meant("device_mem"), "device-mem");
    CHECK_STR(meant("reprot"), "report");
}

TEST(far)
{
    CHECK(!meant("xyz"));
    CHECK(!meant(""));
    CHECK(!meant("q")); /* one edit, but all of the word */
    CHECK(!meant("optimize"));
    char longer[200];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    CHECK(!meant(longer));
    sl_suggestion none = {.word = "train"};
    CHECK(!sl_suggested(&none));
    sl_suggest(&none, longer);
    CHECK(!sl_suggested(&none));
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(near);
    RUN(far);
    return test_end();
}
