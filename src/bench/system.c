#include "bench/system.h"

#include <stdio.h>

#include "bench/calibrate.h"
#include "bench/disk.h"
#include "bench/limiter.h"

/* A folder that cannot be written to is a row too: it does not take minutes of other figures along. */
void sl_system_storage(const sl_system_config *c, sl_results *results)
{
    sl_disk_rates rates;
    sl_status status =
        sl_disk_measure(c->disk, c->quick ? (size_t) 32 << 20 : (size_t) 512 << 20, c->quick ? 0.2 : 1, &rates);
    sl_system_storage_table(c->disk, status == SL_OK ? &rates : NULL, rates.kind, results);
}

void sl_system_storage_table(const char *folder, const sl_disk_rates *r, const char *kind, sl_results *results)
{
    char title[160], how[96];
    snprintf(title, sizeof title, "Storage of %.80s: %s", folder, kind);
    sl_table *t = sl_results_table(results, "disk", title, "access rate:.1 unit how");
    if (!r) {
        SL_ROW(t, "not measured", sl_cell_none(), sl_cell_none(), sl_error_message());
        return;
    }
    const char *cache = r->direct ? "past the page cache" : "page cache dropped first, where it can be";
    SL_ROW(t, "write in order", 1e-6 * r->write_bytes_per_s, "MB/s", "4 MiB pieces, flush included");
    SL_ROW(t, "read in order", 1e-6 * r->read_bytes_per_s, "MB/s", cache);
    static const char *const readers[] = {"4 KiB anywhere, 1 reader", "4 KiB anywhere, 4 readers",
                                          "4 KiB anywhere, 16 readers"};
    for (int i = 0; i < 3; i++)
        SL_ROW(t, readers[i], r->small_per_s[i], "reads/s", cache);
    snprintf(how, sizeof how, "std %.1f, from %.1f to %.1f", 1e6 * r->small_s.std, 1e6 * r->small_s.min,
             1e6 * r->small_s.max);
    SL_ROW(t, "one 4 KiB read", 1e6 * r->small_s.mean, "us", how);
}

void sl_system_sustained_table(const sl_calibration *c, sl_results *results)
{
    char title[160];
    const sl_rates *a = &c->rates[SL_F32], *b = &c->rates[SL_BF16];
    snprintf(title, sizeof title, "Sustained rates inside training steps (%s)", c->model);
    sl_table *t = sl_results_table(results, "sustained", title, "tasks f32:.g bf16:.g unit");
    SL_ROW(t, "matrix products", 1e-12 * a->matmul_flops, 1e-12 * b->matmul_flops, "TFLOP/s");
    for (int d = 0; d < 2; d++)
        SL_ROW(t, d ? "attention backward" : "attention forward", 1e-12 * a->attention_flops[d],
               1e-12 * b->attention_flops[d], "TFLOP/s");
    SL_ROW(t, "everything else on the device", 1e-9 * a->device_bytes, 1e-9 * b->device_bytes, "GB/s");
    SL_ROW(t, "updates beside host memory", sl_cell_if(a->host_bytes > 0, 1e-9 * a->host_bytes),
           sl_cell_if(b->host_bytes > 0, 1e-9 * b->host_bytes), "GB/s");
    SL_ROW(t, "between two tasks", 1e6 * a->launch_s, 1e6 * b->launch_s, "us");
}

static void put_profile(const void *context, sl_json_writer *w)
{
    sl_json_begin_object(w, "profile");
    sl_hardware_put(context, w);
    sl_json_end_object(w);
}

static sl_status measure(const sl_system_config *c, const sl_machine *m, sl_results *results)
{
    sl_hardware profile;
    SL_TRY(sl_machine_hardware(c->device, c->threads, &profile));
    sl_system_figures figures = {0};
    sl_calibration calibration;
    SL_TRY(sl_system_measure(c, m, results, &figures, &profile));
    if (c->progress)
        c->progress("training steps");
    SL_TRY(sl_calibrate(c->device, c->threads, c->quick, &calibration));
    sl_system_sustained_table(&calibration, results);
    if (c->disk) {
        if (c->progress)
            c->progress("storage");
        sl_system_storage(c, results);
    }
    const char *names[] = {"this machine, f32, measured", "this machine, bf16, measured"};
    double bandwidth[] = {figures.device_bandwidth, figures.device_bandwidth};
    sl_ridge_table(names, figures.best_flops, bandwidth, SL_COUNT(names), results);
    sl_limiter_table(figures.best_flops[SL_BF16] / figures.device_bandwidth, "This machine", results);
    sl_calibrate_profile(&calibration, figures.best_flops, &profile);
    if (!profile.shared_cores) {
        SL_TRY(sl_calibrate_launch(c->device, c->threads, &profile));
        sl_results_note(results, "A launch takes %.1f us beyond its arithmetic and bytes (small, 4 layers).",
                        1e6 * profile.launch_latency_s);
    }
    sl_results_extend(results, put_profile, &profile, sizeof profile);
    return SL_OK;
}

sl_status sl_system_run(const sl_system_config *c, sl_results **out)
{
    sl_machine machine;
    sl_results *results;
    SL_TRY(sl_results_create("system", "system", &results));
    sl_machine_probe(&machine);
    sl_status status = sl_machine_facts(c->device, c->threads, results);
    sl_system_describe(&machine, c, results);
    if (status == SL_OK && !c->probe_only)
        status = measure(c, &machine, results);
    if (status == SL_OK)
        status = sl_results_status(results);
    if (status != SL_OK) {
        sl_results_destroy(results);
        return status;
    }
    *out = results;
    return SL_OK;
}
