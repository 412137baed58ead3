#include "train/summary.h"

void sl_summary_put(const sl_summary *s, sl_json_writer *w)
{
    sl_json_put_f64(w, "step_s", s->step_s);
    sl_json_put_f64(w, "tokens_per_s", s->tokens_per_s);
    sl_json_put_f64(w, "tflops", s->tflops);
    sl_json_put_f64(w, "mfu", s->mfu);
    sl_json_put_f64(w, "hfu", s->hfu);
    sl_json_put_bytes(w, "device_peak_bytes", s->peak_bytes[SL_TIER_DEVICE]);
    sl_json_put_bytes(w, "host_peak_bytes", s->peak_bytes[SL_TIER_HOST]);
    sl_json_put_f64(w, "h2d_bytes_per_step", s->link_bytes[SL_LINK_IN]);
    sl_json_put_f64(w, "d2h_bytes_per_step", s->link_bytes[SL_LINK_OUT]);
    sl_json_put_f64(w, "recompute_fraction", s->recompute_fraction);
}
