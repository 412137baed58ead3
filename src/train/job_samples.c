/* The options of samples: texts that the model makes while it is trained (samples.c). */
#include <inttypes.h>

#include "train/job.h"

static const sl_option table[] = {
    {"sample-every", "STEPS", SL_OPT_I64, "0", "Training",
     "Generate a text from --sample-prompt after every so many steps and after the last, for the log and the report; "
     "0: never. Its memory is part of the plan. Changes no bit of the result."},
    {"sample-prompt", "TEXT", SL_OPT_STRING, NULL, "Training",
     "What samples begin with. Default: the model begins a document of its own."},
    {"sample-tokens", "N", SL_OPT_I64, "64", "Training",
     "The most tokens of a sample, which ends where the model ends it."},
};

int64_t sl_job_list_sample_options(sl_option *whole, int64_t count)
{
    _Static_assert(SL_COUNT(table) == SL_SAMPLE_OPTIONS, "SL_SAMPLE_OPTIONS is the number of these options");
    for (int64_t i = 0; i < SL_COUNT(table); i++)
        whole[count++] = table[i];
    return count;
}

sl_status sl_job_resolve_samples(const sl_options *o, sl_setup *setup)
{
    enum { MOST_TOKENS = 1 << 20 };
    static const char *const others[] = {"sample-prompt", "sample-tokens"};
    const char *prompt = sl_options_string(o, "sample-prompt");
    setup->sample_every = sl_options_i64(o, "sample-every");
    setup->sample_tokens = sl_options_i64(o, "sample-tokens");
    setup->sample_prompt = prompt ? prompt : "";
    if (setup->sample_every < 0)
        return sl_fail(SL_E_USAGE, "--sample-every %" PRId64 " is too small: give at least 0", setup->sample_every);
    if (setup->sample_tokens < 1 || setup->sample_tokens > MOST_TOKENS)
        return sl_fail(SL_E_USAGE, "--sample-tokens %" PRId64 " is out of range: give 1 to %d", setup->sample_tokens,
                       MOST_TOKENS);
    for (int64_t i = 0; i < SL_COUNT(others) && !setup->sample_every; i++)
        if (sl_options_is_set(o, others[i]))
            return sl_fail(SL_E_USAGE, "--%s has no effect without --sample-every: give it too, or leave it out",
                           others[i]);
    return SL_OK;
}
