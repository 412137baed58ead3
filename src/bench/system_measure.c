/*
 * What is measured: the fastest GEMM per dtype, memory bandwidth by copy and triad, both directions of the
 * link alone and together and by size, and what odd dimensions cost. Each figure stands beside the nominal one where
 * that is known.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/links.h"
#include "bench/numerics.h"
#include "bench/peak.h"
#include "bench/roofline.h"
#include "bench/system.h"
#include "core/clock.h"
#include "core/pages.h"
#include "core/pool.h"
#include "device/throughput.h"
#include "ops/matmul.h"

static sl_cell rate_cell(double rate, double unit)
{
    return rate > 0 ? sl_cell_number(rate / unit) : sl_cell_none();
}

static sl_cell percent_cell(double measured, double nominal)
{
    return measured > 0 && nominal > 0 ? sl_cell_number(100 * measured / nominal) : sl_cell_none();
}

static void tell(const sl_system_config *c, const char *what)
{
    if (c->progress)
        c->progress(what);
}

/* ---- peaks (S2) ---- */

static size_t product_bytes(void)
{
    return 3 * (size_t) 8192 * 8192 * 4 + ((size_t) 128 << 20);
}

static const char peak_columns[] = "dtype tflops:TFLOP/s.3* nominal:TFLOP/s.3 percent:%.1 how";
/* One rate. `nominal` 0: not known. */
static sl_status peak_row(const sl_system_config *c, sl_rig *rig, sl_dtype dtype, const char *name, double nominal,
                          const char *how, sl_table *t, double *best)
{
    int64_t side = 0;
    char text[160];
    double guess = rig->hardware.peak_flops[dtype];
    *best = 0;
    SL_TRY(sl_roofline_product(rig, dtype, guess, c->quick ? 0.01 : 0.04, best, &side));
    snprintf(text, sizeof text, "matrix product %lld^3%s", (long long) side, how);
    SL_ROW(t, name, rate_cell(*best, 1e12), rate_cell(nominal, 1e12), percent_cell(*best, nominal), text);
    return SL_OK;
}

/* Registers alone give the CPU's own nominal figure: its clock goes above the one it is sold with. */
static sl_status cpu_peaks(const sl_system_config *c, sl_rig *rig, sl_results *results, sl_table *t,
                           sl_system_figures *f)
{
    double vector[2];
    for (int i = 0; i < 2; i++)
        vector[i] = sl_peak_measure(i ? 64 : 32, c->threads, c->quick ? 0.1 : 0.5);
    for (int dtype = SL_F32; dtype <= SL_BF16; dtype++) {
        bool measured = vector[0] >= rig->hardware.peak_flops[dtype];
        SL_TRY(peak_row(c, rig, (sl_dtype) dtype, sl_dtype_name((sl_dtype) dtype),
                        measured ? vector[0] : rig->hardware.peak_flops[dtype],
                        measured ? "; nominal: the vector units as measured below"
                                 : "; nominal: FLOP per cycle, cores and clock",
                        t, &f->best_flops[dtype]));
    }
    for (int i = 0; i < 2 && vector[0] > 0; i++)
        SL_ROW(t, i ? "f64" : "f32", rate_cell(vector[i], 1e12), sl_cell_none(), sl_cell_none(),
               "multiply-adds on registers, all cores");
    sl_cpu_throughput per_cycle;
    SL_TRY(sl_cpu_throughput_here(&per_cycle));
    sl_results_note(results,
                    "A core does %.0f f32 FLOP per cycle (%s; FMAs on registers: %.1f) and %.0f in bf16; its clock "
                    "under that load: "
                    "%.1f GHz.",
                    per_cycle.f32, per_cycle.source, per_cycle.measured, per_cycle.bf16, 1e-9 * per_cycle.hz);
    return SL_OK;
}

static sl_status rig_peaks(const sl_system_config *c, bool hot, sl_results *results, sl_table *t, sl_system_figures *f)
{
    sl_rig rig;
    size_t bytes = c->quick ? (size_t) 512 << 20 : product_bytes();
    SL_TRY(hot ? sl_rig_open_warm(c->device, c->threads, bytes, &rig)
               : sl_rig_open(c->device, c->threads, bytes, &rig));
    sl_status status = SL_OK;
    if (rig.hardware.shared_cores)
        status = cpu_peaks(c, &rig, results, t, f);
    for (int dtype = SL_F32; dtype <= SL_BF16 && !rig.hardware.shared_cores && status == SL_OK; dtype++)
        status = peak_row(c, &rig, (sl_dtype) dtype, sl_dtype_name((sl_dtype) dtype), rig.hardware.peak_flops[dtype],
                          hot ? ", under load" : ", from idle: the best of a few short runs", t, &f->best_flops[dtype]);
    sl_rig_close(&rig);
    return status;
}

/* No dtype of ours, but a way of the device to multiply f32. */
static sl_status tf32_peak(const sl_system_config *c, sl_table *t)
{
    bool offered;
    double best;
    sl_rig rig;
    SL_TRY(sl_tf32_offered(c->device, &offered));
    if (!offered) {
        SL_ROW(t, "tf32", sl_cell_none(), sl_cell_none(), sl_cell_none(), "not offered by this device");
        return SL_OK;
    }
    sl_tf32_switch(true);
    sl_status status = sl_rig_open_warm(c->device, c->threads, product_bytes(), &rig);
    if (status == SL_OK) {
        status = peak_row(c, &rig, SL_F32, "tf32", 0, ", under load, SLUICE_TF32=1", t, &best);
        sl_rig_close(&rig);
    }
    sl_tf32_switch(false);
    return status;
}

static sl_status peak_table(const sl_system_config *c, bool cpu, sl_results *results, sl_system_figures *f)
{
    sl_table *t = sl_results_table(results, "peaks", "Arithmetic", peak_columns);
    sl_system_figures after_idle;
    SL_TRY(rig_peaks(c, true, results, t, f));
    if (!cpu)
        SL_TRY(rig_peaks(c, false, results, t, &after_idle));
    SL_TRY(tf32_peak(c, t));
    SL_ROW(t, cpu ? "f16, int8, fp8" : "f64, f16, int8, fp8", sl_cell_none(), sl_cell_none(), sl_cell_none(),
           "not offered: no dtypes of Sluice");
    return SL_OK;
}

/* ---- what GEMM does with bits (S9) ---- */

static sl_status numerics_table(const sl_system_config *c, sl_results *results)
{
    sl_table *t =
        sl_results_table(results, "numerics", "What the matrix multiply does with numbers", "question answer");
    sl_rig rig;
    sl_numerics n;
    SL_TRY(sl_rig_open(c->device, c->threads, (size_t) 128 << 20, &rig));
    sl_status status = sl_numerics_probe(&rig, &n);
    sl_rig_close(&rig);
    SL_TRY(status);
    SL_ROW(t, "f32 inputs are used as", sl_numerics_f32(&n));
    SL_ROW(t, "bf16 products are added up in", sl_numerics_sums(&n));
    return SL_OK;
}

/* ---- memory bandwidth (S3) ---- */

typedef struct host_job {
    float *a, *b, *c;
    int64_t tile;
    bool triad;
} host_job;

static void host_tile(void *context, int64_t tile, int thread)
{
    host_job *j = context;
    float *a = j->a + tile * j->tile, *b = j->b + tile * j->tile, *c = j->c + tile * j->tile;
    (void) thread;
    if (j->triad)
        for (int64_t i = 0; i < j->tile; i++)
            c[i] = a[i] + 0.5f * b[i];
    else
        memcpy(c, a, (size_t) j->tile * sizeof *a);
}

/* Copy and triad over host memory with all threads; GB/s of reads and writes. */
static sl_status host_bandwidth(int threads, size_t bytes, double seconds, double rate[2])
{
    host_job job = {.tile = 1 << 18};
    int64_t tiles = (int64_t) (bytes / sizeof(float)) / job.tile, count = tiles * job.tile;
    void *memory;
    sl_pool *pool;
    SL_TRY(sl_pages_map(3 * (size_t) count * sizeof(float), &memory));
    sl_status status = sl_pool_create(threads, &pool);
    if (status != SL_OK) {
        sl_pages_unmap(memory, 3 * (size_t) count * sizeof(float));
        return status;
    }
    job.a = memory, job.b = job.a + count, job.c = job.b + count;
    for (int64_t i = 0; i < 3 * count; i++)
        job.a[i] = 1.0f;
    for (int triad = 0; triad < 2; triad++) {
        double began = sl_clock_s(), best = INFINITY;
        job.triad = triad;
        for (int run = 0; run < 3 || sl_clock_s() - began < seconds; run++) {
            double start = sl_clock_s();
            sl_pool_run(pool, host_tile, &job, tiles);
            best = fmin(best, sl_clock_s() - start);
        }
        rate[triad] = (triad ? 3.0 : 2.0) * (double) count * sizeof(float) / best;
    }
    sl_pool_destroy(pool);
    sl_pages_unmap(memory, 3 * (size_t) count * sizeof(float));
    return SL_OK;
}

/* From data sheets. */
static double nominal_bandwidth(const char *name)
{
    static const struct {
        const char *name;
        double bytes_per_s;
    } known[] = {{"H200", 4.8e12},
                 {"H100 NVL", 3.9e12},
                 {"H100 PCIe", 2.0e12},
                 {"H100", 3.35e12},
                 {"A100-SXM4-40GB", 1.555e12},
                 {"A100-PCIE-40GB", 1.555e12},
                 {"A100", 2.039e12},
                 {"V100", 0.9e12},
                 {"RTX 5090", 1.792e12},
                 {"RTX 3090", 0.936e12},
                 {"B200", 8.0e12},
                 {"L40S", 0.864e12}};
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        if (strstr(name, known[i].name))
            return known[i].bytes_per_s;
    return 0;
}

static sl_status bandwidth_table(const sl_system_config *c, sl_results *results, sl_system_figures *f)
{
    sl_table *t = sl_results_table(results, "bandwidth", "Memory bandwidth, reads and writes together",
                                   "memory pattern gbps:GB/s.1* nominal:GB/s percent:%.1");
    sl_rig rig;
    double copy = 0, triad = 0, host[2] = {0, 0};
    double seconds = c->quick ? 0.15 : 1;
    SL_TRY(sl_rig_open(c->device, c->threads, (size_t) 1 << 30, &rig));
    bool shared = rig.hardware.shared_cores;
    size_t bytes = c->quick && shared ? (size_t) 64 << 20 : (size_t) 256 << 20;
    double nominal = nominal_bandwidth(rig.hardware.name);
    sl_status status = sl_roofline_stream(&rig, SL_OP_SCALE, bytes, seconds, &copy);
    if (status == SL_OK)
        status = sl_roofline_stream(&rig, SL_OP_ADD, bytes, seconds, &triad);
    sl_rig_close(&rig);
    SL_TRY(status);
    SL_TRY(host_bandwidth(c->threads, c->quick ? (size_t) 64 << 20 : (size_t) 256 << 20, seconds, host));
    const char *label = shared ? "device (this RAM)" : "device";
    SL_ROW(t, label, "copy: y = s x", rate_cell(copy, 1e9), rate_cell(nominal, 1e9), percent_cell(copy, nominal));
    SL_ROW(t, label, "triad: c = a + b", rate_cell(triad, 1e9), rate_cell(nominal, 1e9), percent_cell(triad, nominal));
    SL_ROW(t, "host", "copy", rate_cell(host[0], 1e9), sl_cell_none(), sl_cell_none());
    SL_ROW(t, "host", "triad", rate_cell(host[1], 1e9), sl_cell_none(), sl_cell_none());
    f->device_bandwidth = SL_MAX(copy, triad);
    f->host_bandwidth = SL_MAX(host[0], host[1]);
    return SL_OK;
}

/* ---- the link (S4) ---- */

static sl_status size_table(sl_timer *rig, bool quick, sl_results *results)
{
    sl_table *t = sl_results_table(results, "link_sizes", "One copy by its size: latency, then bandwidth",
                                   "kib:KiB in_us:us.1 in_gbps:GB/s.2* out_us:us.1 out_gbps:GB/s.2");
    for (int64_t kib = 4; kib <= (quick ? 16 << 10 : 64 << 10); kib *= 4) {
        double seconds[2], bytes = (double) (kib << 10);
        for (int out = 0; out < 2; out++)
            SL_TRY(sl_link_copy(rig, out, (size_t) kib << 10, &seconds[out]));
        SL_ROW(t, kib, 1e6 * seconds[0], rate_cell(bytes / seconds[0], 1e9), 1e6 * seconds[1],
               rate_cell(bytes / seconds[1], 1e9));
    }
    return SL_OK;
}

static sl_status link_tables(const sl_system_config *c, const sl_machine *m, sl_results *results, sl_hardware *profile)
{
    sl_table *t = sl_results_table(results, "links", "Copies between host and device memory",
                                   "direction gbps:GB/s.2* nominal:GB/s.2 percent:%.1");
    size_t piece = c->quick ? (size_t) 16 << 20 : (size_t) 64 << 20;
    double nominal = 0;
    sl_timer rig;
    sl_link_rates figures = {0};
    for (int i = 0; i < m->n_pci && !profile->shared_cores; i++)
        if (strcmp(m->pci[i].kind, "GPU") == 0)
            nominal = SL_MAX(nominal, m->pci[i].link_bytes_per_s);
    SL_TRY(sl_link_open(c->device, c->threads, 2 * SL_MAX(piece, (size_t) 64 << 20), &rig));
    sl_status status = sl_link_measure(&rig, piece, &figures);
    if (status == SL_OK)
        status = size_table(&rig, c->quick, results);
    sl_timer_close(&rig);
    SL_TRY(status);
    SL_ROW(t, "to the device, alone", rate_cell(figures.alone[0], 1e9), rate_cell(nominal, 1e9),
           percent_cell(figures.alone[0], nominal));
    SL_ROW(t, "from the device, alone", rate_cell(figures.alone[1], 1e9), rate_cell(nominal, 1e9),
           percent_cell(figures.alone[1], nominal));
    SL_ROW(t, "to the device, both busy", rate_cell(figures.both[0], 1e9), rate_cell(nominal, 1e9),
           percent_cell(figures.both[0], nominal));
    SL_ROW(t, "from the device, both busy", rate_cell(figures.both[1], 1e9), rate_cell(nominal, 1e9),
           percent_cell(figures.both[1], nominal));
    sl_results_note(results, "A small copy takes %.1f us from the event it waits for to the one behind it.",
                    1e6 * figures.latency_s);
    for (int d = 0; d < 2; d++)
        profile->link_bandwidth[d] = figures.alone[d];
    profile->link_bandwidth_both = SL_MIN(figures.both[0], figures.both[1]);
    profile->link_latency_s = figures.latency_s;
    return SL_OK;
}

/* ---- alignment and layout (S12) ---- */

static sl_status alignment_table(const sl_system_config *c, sl_results *results)
{
    static const int64_t extra[] = {0, 1, 2, 8};
    sl_table *t =
        sl_results_table(results, "alignment", "Matrix products: dimensions that are no multiple, operands transposed",
                         "dtype layout side tflops:TFLOP/s.3* of_aligned:%.1");
    sl_rig rig;
    SL_TRY(sl_rig_open_warm(c->device, c->threads, (size_t) 512 << 20, &rig));
    int64_t side = rig.hardware.shared_cores ? (c->quick ? 512 : 1024) : 4096;
    double limit = c->quick ? 0.05 : 0.3;
    for (int dtype = SL_F32; dtype <= SL_BF16; dtype++) {
        double aligned = 0;
        for (int64_t i = 0; i < SL_COUNT(extra) + 3; i++) {
            static const char *const layouts[] = {"x W^T", "x W", "x^T W", "x^T W^T"};
            int layout = i < SL_COUNT(extra) ? 0 : (int) (i - SL_COUNT(extra) + 1);
            int64_t n = side + (layout ? 0 : extra[i]);
            sl_launch launch = {.op = SL_OP_MATMUL};
            sl_stats stats;
            sl_matmul_set(&launch.attrs)->trans_b = layout == 0 || layout == 3;
            sl_matmul_set(&launch.attrs)->trans_a = layout >= 2;
            launch.in[0].type = launch.in[1].type = launch.out[0].type = sl_type_2d((sl_dtype) dtype, n, n);
            rig.used = 0;
            sl_status status = sl_rig_place(&rig, &launch);
            if (status == SL_OK)
                status = sl_rig_fill(&rig, &launch);
            if (status == SL_OK)
                status = sl_rig_time(&rig, &launch, 1, 1, 20, limit, &stats);
            if (status != SL_OK) {
                sl_rig_close(&rig);
                return status;
            }
            double rate = 2.0 * (double) n * (double) n * (double) n / stats.median;
            aligned = i == 0 ? rate : aligned;
            SL_ROW(t, sl_dtype_name((sl_dtype) dtype), layouts[layout], n, rate_cell(rate, 1e12),
                   percent_cell(rate, aligned));
        }
    }
    sl_rig_close(&rig);
    return SL_OK;
}

sl_status sl_system_measure(const sl_system_config *c, const sl_machine *m, sl_results *results,
                            sl_system_figures *figures, sl_hardware *profile)
{
    tell(c, "arithmetic");
    SL_TRY(peak_table(c, profile->shared_cores, results, figures));
    SL_TRY(numerics_table(c, results));
    tell(c, "memory bandwidth");
    SL_TRY(bandwidth_table(c, results, figures));
    profile->memory_bandwidth[SL_TIER_DEVICE] = figures->device_bandwidth;
    profile->memory_bandwidth[SL_TIER_HOST] = figures->host_bandwidth;
    tell(c, "the link");
    SL_TRY(link_tables(c, m, results, profile));
    tell(c, "alignment");
    return alignment_table(c, results);
}
