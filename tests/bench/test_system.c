/* `sluice system`: the fields agree with the machine, the intensities are exact, and the profile plans. */
#include "bench/calibrate.h"
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "bench/disk.h"
#include "bench/disk_kind.h"
#include "bench/limiter.h"
#include "bench/machine.h"
#include "bench/system.h"
#include "core/file.h"
#include "device/cpu/kernels/kernel.h"
#include "device/throughput.h"
#include "run_bench.h"

static void check_command(const char *command, double want, const char *what)
{
    double got;
    FILE *pipe = popen(command, "r");
    if (!pipe || fscanf(pipe, "%lf", &got) != 1 || got == 0)
        got = want; /* no lscpu here, or it does not know: nothing to hold it against */
    if (pipe)
        pclose(pipe);
    CHECK_MSG(got == want, "%s is %g, and %g as the system tells it", what, want, got);
}

TEST(probe)
{
    sl_machine m;
    sl_machine_probe(&m);
    CHECK(m.threads >= 1 && m.cores >= 1 && m.cores <= m.threads && m.sockets >= 1 && m.nodes >= 1);
    CHECK(m.usable_threads >= 1 && m.usable_threads <= m.threads);
    CHECK(m.ram_bytes > (size_t) 64 << 20 && m.available_bytes <= m.ram_bytes);
    CHECK(m.architecture[0] && m.kernel[0] && m.libc[0]);
    check_command("lscpu -p=CPU 2>/dev/null | grep -c '^[0-9]'", m.threads, "threads"); /* those that are online */
    check_command("lscpu -p=CORE,SOCKET 2>/dev/null | grep '^[0-9]' | sort -u | wc -l", m.cores, "cores");
    check_command("lscpu -p=SOCKET 2>/dev/null | grep '^[0-9]' | sort -u | wc -l", m.sockets, "sockets");
    for (int i = 0; i < m.n_caches; i++) {
        char command[128];
        const sl_cache *c = &m.caches[i];
        snprintf(command, sizeof command, "lscpu -B -C=NAME,ONE-SIZE 2>/dev/null | awk '$1 == \"L%d%s\" {print $2}'",
                 c->level, c->kind == 'u' ? "" : (char[]){c->kind, 0});
        check_command(command, (double) c->bytes, command);
    }
}

/* What hwloc says and what /sys says must agree where both speak. */
TEST(hwloc_agrees_with_sys)
{
    sl_machine m;
    sl_machine_probe(&m);
    if (strncmp(m.source, "hwloc", 5) != 0) {
        printf("without hwloc: /sys is all there is\n");
        return;
    }
    CHECK_MSG(m.threads == (int) sysconf(_SC_NPROCESSORS_ONLN), "hwloc: %d threads", m.threads);
}

TEST(sysfs_texts)
{
    int g;
    CHECK_I64(sl_machine_count_list("0-3,8"), 5);
    CHECK_I64(sl_machine_count_list("0"), 1);
    CHECK_I64(sl_machine_count_list("0-1,4-7,9"), 7);
    CHECK_I64(sl_machine_count_list(""), 0);
    CHECK_I64((int64_t) sl_machine_cache_bytes("48K"), 48 << 10);
    CHECK_I64((int64_t) sl_machine_cache_bytes("4M"), 4 << 20);
    CHECK_NEAR(sl_machine_link_rate(2.5, 1, &g), 0.25e9, 1); /* as the standard says of generation 1 */
    CHECK_I64(g, 1);
    CHECK_NEAR(sl_machine_link_rate(5, 4, &g), 2e9, 1);
    CHECK_I64(g, 2);
    CHECK_NEAR(sl_machine_link_rate(8, 16, &g), 15.754e9, 1e6);
    CHECK_I64(g, 3);
    CHECK_NEAR(sl_machine_link_rate(32, 16, &g), 63.015e9, 1e6);
    CHECK_I64(g, 5);
    CHECK_NEAR(sl_machine_link_rate(64, 16, &g), 128e9, 1);
    CHECK_I64(g, 6);
}

/* Each figure in its own row. */
TEST(tables_of_figures)
{
    sl_disk_rates r = {.direct = true, .write_bytes_per_s = 1e9, .read_bytes_per_s = 2e9, .small_per_s = {3, 4, 5}};
    r.small_s = (sl_stats){.n = 9, .mean = 6e-6, .std = 7e-6, .min = 8e-6, .max = 9e-6};
    sl_calibration c = {
        .model = "m",
        .rates = {
            [SL_F32] = {1e12, {2e12, 3e12}, 4e9, 5e9, 6e-6}, [SL_BF16] = {11e12, {12e12, 13e12}, 14e9, 15e9, 16e-6}}};
    sl_results_destroy(bench_results);
    CHECK_OK(sl_results_create("system", "system", &bench_results));
    sl_system_storage_table("here", &r, "ext4 on vda (virtual)", bench_results);
    sl_system_sustained_table(&c, bench_results);
    CHECK_OK(sl_results_status(bench_results));
    static const double disk[] = {1000, 2000, 3, 4, 5, 6};
    for (int64_t i = 0; i < SL_COUNT(disk); i++)
        CHECK_NEAR(bench_number("disk", i, "rate"), disk[i], 1e-9);
    CHECK_STR(bench_text("disk", 5, "how"), "std 7.0, from 8.0 to 9.0");
    CHECK_STR(bench_text("disk", 1, "how"), "past the page cache");
    for (int64_t i = 0; i < 6; i++) {
        CHECK_NEAR(bench_number("sustained", i, "f32"), (double) i + 1, 1e-9);
        CHECK_NEAR(bench_number("sustained", i, "bf16"), (double) i + 11, 1e-9);
    }
    sl_results_destroy(bench_results);
    bench_results = NULL;
}

TEST(intensities)
{
    int64_t count;
    const sl_intensity *t = sl_intensities(&count);
    CHECK_I64(count, 5);
    CHECK_NEAR(t[0].flops / t[0].bytes, 315.08, 0.005);
    CHECK_NEAR(t[1].flops / t[1].bytes, 0.9988, 0.00005);
    CHECK_NEAR(t[2].flops / t[2].bytes, 2.25, 0);
    CHECK_NEAR(t[3].flops / t[3].bytes, 0.25, 0);
    CHECK(t[4].flops / t[4].bytes < 10);
    CHECK_STR(sl_limiter(315, 138.9), "arithmetic");
    CHECK_STR(sl_limiter(1, 138.9), "memory");
    CHECK_STR(sl_limiter(315, 400), "memory"); /* a machine with much arithmetic for its memory */
}

TEST(disk)
{
    sl_disk_rates r;
    CHECK_OK(sl_disk_measure(test_dir(), (size_t) 8 << 20, 0.05, &r));
    CHECK(r.write_bytes_per_s > 0 && r.read_bytes_per_s > 0 && r.small_s.n > 0);
    for (int i = 0; i < 3; i++)
        CHECK(r.small_per_s[i] > 0);
    struct stat info;
    char number[32];
    CHECK_I64(stat(test_dir(), &info), 0);
    snprintf(number, sizeof number, "%u:%u", major(info.st_dev), minor(info.st_dev));
    sl_disk_kind kind = sl_disk_kind_of("/sys", number, sl_disk_in_guest("/proc/cpuinfo", "/sys"));
    if (kind != SL_DISK_UNKNOWN) {
        char want[32];
        snprintf(want, sizeof want, "(%s)", sl_disk_kind_name(kind));
        CHECK_CONTAINS(r.kind, want);
    }
    CHECK_FAILS(sl_disk_measure("/no/such/folder", (size_t) 8 << 20, 0.05, &r), SL_E_IO);
}

/* /proc takes no files, not even root's. */
TEST(storage_that_cannot_be_written)
{
    sl_system_config config = {.quick = true, .disk = "/proc"};
    sl_results_destroy(bench_results);
    CHECK_OK(sl_results_create("system", "system", &bench_results));
    sl_system_storage(&config, bench_results);
    CHECK_OK(sl_results_status(bench_results));
    CHECK_I64(sl_table_rows(bench_table("disk")), 1);
    CHECK_STR(bench_text("disk", 0, "access"), "not measured");
    CHECK_CONTAINS(bench_text("disk", 0, "how"), "name a folder with room by --disk, or give --disk none");
    sl_results_destroy(bench_results);
    bench_results = NULL;
}

/* Rates and profile are two spellings of one thing: the roofline must give the rates back. */
TEST(profile_carries_the_rates)
{
    sl_calibration c = {
        .rates = {[SL_F32] = {6e10, {2e10, 3e10}, 9e9, 4e9, 2e-6}, [SL_BF16] = {3e10, {1e10, 1e10}, 5e9, 4e9, 0}}};
    double best[SL_DTYPE_COUNT] = {8e10, 9e10};
    sl_hardware hw = {.shared_cores = true, .memory_bandwidth = {1e10, 2e10}};
    sl_calibrate_profile(&c, best, &hw);
    for (int dtype = SL_F32; dtype <= SL_BF16; dtype++) {
        CHECK_NEAR(hw.peak_flops[dtype], best[dtype], 0);
        CHECK_NEAR(hw.peak_flops[dtype] * hw.matmul_efficiency[dtype], c.rates[dtype].matmul_flops, 1);
        for (int d = 0; d < 2; d++)
            CHECK_NEAR(hw.peak_flops[dtype] * hw.attention_efficiency[dtype][d], c.rates[dtype].attention_flops[d], 1);
    }
    CHECK_NEAR(hw.memory_bandwidth[SL_TIER_DEVICE], 9e9, 0);
    CHECK_NEAR(hw.host_optimizer_bandwidth, 4e9, 0);
    CHECK_NEAR(hw.launch_latency_s, 2e-6, 0);
    sl_hardware gpu = {.peak_flops = {[SL_F32] = 67e12, [SL_BF16] = 989e12}, .memory_bandwidth = {4e12, 1e11}};
    c.rates[SL_BF16] = (sl_rates){600e12, {500e12, 400e12}, 3e12, 0, 3e-6};
    c.rates[SL_F32] = (sl_rates){40e12, {20e12, 20e12}, 3e12, 0, 3e-6};
    sl_calibrate_profile(&c, best, &gpu);
    CHECK_NEAR(gpu.peak_flops[SL_BF16], 989e12, 0); /* MFU keeps its measure */
    CHECK_NEAR(gpu.peak_flops[SL_F32], 67e12, 0);
    CHECK_NEAR(gpu.peak_flops[SL_BF16] * gpu.matmul_efficiency[SL_BF16], 600e12, 1e6);
    CHECK_NEAR(gpu.peak_flops[SL_F32] * gpu.matmul_efficiency[SL_F32], 40e12, 1e6);
    CHECK_NEAR(gpu.peak_flops[SL_F32] * gpu.attention_efficiency[SL_F32][0], 20e12, 1e6);
}

/* A kind of task that never ran is taken at half of the peak, and nothing is faster than the peak. */
TEST(profile_of_missing_rates)
{
    sl_calibration c = {.rates = {[SL_F32] = {0, {0, 9e12}, 0, 0, 0}, [SL_BF16] = {5e9, {1e9, 1e9}, 0, 0, 0}}};
    double best[SL_DTYPE_COUNT] = {8e10, 1e9};
    sl_hardware hw = {.shared_cores = true, .memory_bandwidth = {1e10, 2e10}, .launch_latency_s = 4e-6};
    sl_calibrate_profile(&c, best, &hw);
    CHECK_NEAR(hw.matmul_efficiency[SL_F32], 0.5, 0);
    CHECK_NEAR(hw.attention_efficiency[SL_F32][0], 0.5, 0);
    CHECK_NEAR(hw.attention_efficiency[SL_F32][1], 1, 0);
    CHECK_NEAR(hw.peak_flops[SL_BF16], 5e9, 0); /* in steps it was faster than alone */
    CHECK_NEAR(hw.memory_bandwidth[SL_TIER_DEVICE], 1e10, 0);
    CHECK_NEAR(hw.host_optimizer_bandwidth, 2e10, 0);
    CHECK_NEAR(hw.launch_latency_s, 4e-6, 0);
}

/* What rates leave unexplained of a small model's step is its launches'. */
TEST(launch_latency)
{
    sl_hardware slow = {.shared_cores = true,
                        .peak_flops = {1e6, 1e6},
                        .matmul_efficiency = {1, 1},
                        .attention_efficiency = {{1, 1}, {1, 1}},
                        .memory_bandwidth = {1e3, 1e3},
                        .launch_latency_s = 1},
                fast = slow;
    fast.peak_flops[SL_F32] = fast.peak_flops[SL_BF16] = fast.memory_bandwidth[SL_TIER_DEVICE] = 1e18;
    CHECK_OK(sl_calibrate_launch("cpu", 1, &slow));
    CHECK_OK(sl_calibrate_launch("cpu", 1, &fast));
    CHECK_NEAR(slow.launch_latency_s, 0, 0); /* a machine that is faster than its rates */
    CHECK(fast.launch_latency_s > 1e-7 && fast.launch_latency_s <= 1e-3);
}

/* Kernels that watch each of their accesses have little arithmetic for their memory: on them, nothing is said of a machine. */
#ifdef __SANITIZE_ADDRESS__
#define LEAST_FLOPS 1e7
#else
#define LEAST_FLOPS 1e9
#endif

/* What limits follows from the ridge that was measured; ReLU is limited by memory wherever kernels are vectors'. */
static void check_limits(void)
{
    int64_t here = bench_row("ridges", "machine", "this machine, bf16, measured");
    double ridge = bench_number("ridges", here, "ridge_flop_per_byte");
    sl_isa isa;
    for (int64_t r = 0; r < sl_table_rows(bench_table("limiter")); r++)
        CHECK_STR(bench_text("limiter", r, "limited_by"),
                  sl_limiter(bench_number("limiter", r, "flop_per_byte"), ridge));
    CHECK_OK(sl_isa_detect(&isa));
    if (LEAST_FLOPS > 1e8 && isa > SL_ISA_SCALAR)
        CHECK_STR(bench_text("limiter", 3, "limited_by"), "memory");
}

/* The nominal figure is what the cores can do at least: FLOP per cycle at the nominal clock, or what registers alone reached. */
static void check_arithmetic(void)
{
    sl_cpu_throughput per_cycle;
    sl_device *device;
    sl_hardware hw = {0};
    sl_device_config config = {.threads = 2, .max_commands = 1, .max_events = 1};
    CHECK_OK(sl_cpu_throughput_here(&per_cycle));
    CHECK_OK(sl_device_open("cpu", &config, &device));
    device->class->hardware(device, &hw);
    sl_device_close(device);
    double nominal = bench_number("peaks", 0, "nominal"), registers = 0;
    for (int64_t r = 2; r < 4; r++)
        if (strcmp(bench_text("peaks", r, "dtype"), "f32") == 0)
            registers = bench_number("peaks", r, "tflops");
    CHECK_NEAR(nominal, SL_MAX(1e-12 * hw.peak_flops[SL_F32], registers), 1e-9 * nominal);
    CHECK(fmod(per_cycle.f32, 2) == 0 && per_cycle.bf16 >= per_cycle.f32);
}

#define CHECK_SAME(a, b) CHECK_NEAR(a, b, 1e-9 * fabs(b))

/* Shares, ridges and the profile follow from the figures in the tables. */
static void check_derived(const sl_hardware *hw, const char *json)
{
    for (int64_t r = 0; r < 2; r++)
        CHECK_SAME(bench_number("peaks", r, "percent"),
                   100 * bench_number("peaks", r, "tflops") / bench_number("peaks", r, "nominal"));
    double device = SL_MAX(bench_number("bandwidth", 0, "gbps"), bench_number("bandwidth", 1, "gbps"));
    double host = SL_MAX(bench_number("bandwidth", 2, "gbps"), bench_number("bandwidth", 3, "gbps"));
    CHECK_SAME(1e-9 * hw->memory_bandwidth[SL_TIER_HOST], host);
    for (int64_t r = 0; r < 2; r++) {
        CHECK_SAME(bench_number("ridges", r, "tflops"), bench_number("peaks", r, "tflops"));
        CHECK_SAME(bench_number("ridges", r, "gbps"), device);
        CHECK_SAME(bench_number("ridges", r, "ridge_flop_per_byte"), 1e3 * bench_number("peaks", r, "tflops") / device);
    }
    char note[64];
    snprintf(note, sizeof note, "below %.1f FLOP per byte memory limits",
             bench_number("ridges", 1, "ridge_flop_per_byte"));
    CHECK_CONTAINS(json, note);
    for (int64_t d = 0; d < 2; d++)
        CHECK_SAME(1e-9 * hw->link_bandwidth[d], bench_number("links", d, "gbps"));
    CHECK_SAME(1e-9 * hw->link_bandwidth_both,
               SL_MIN(bench_number("links", 2, "gbps"), bench_number("links", 3, "gbps")));
    double aligned = 0;
    for (int64_t r = 0; r < sl_table_rows(bench_table("alignment")); r++) {
        aligned = r % 7 == 0 ? bench_number("alignment", r, "tflops") : aligned; /* seven rows for each dtype */
        CHECK_SAME(bench_number("alignment", r, "of_aligned"), 100 * bench_number("alignment", r, "tflops") / aligned);
    }
    for (int64_t r = 0; r < sl_table_rows(bench_table("link_sizes")); r++)
        CHECK_SAME(bench_number("link_sizes", r, "in_gbps"),
                   1.024e-6 * bench_number("link_sizes", r, "kib") / (1e-6 * bench_number("link_sizes", r, "in_us")));
    CHECK_SAME(hw->peak_flops[SL_F32],
               1e12 * SL_MAX(bench_number("peaks", 0, "tflops"), bench_number("sustained", 0, "f32")));
    CHECK(bench_number("sustained", 5, "f32") > 0);
}

TEST(measured)
{
    sl_system_config config = {.device = "cpu", .threads = 2, .quick = true, .disk = test_dir()};
    sl_hardware hw;
    sl_json_writer w = {0};
    CHECK_OK(sl_system_run(&config, &bench_results));
    static const char *const tables[] = {"machine",   "caches",    "numa",      "pci",    "software",
                                         "peaks",     "numerics",  "bandwidth", "links",  "link_sizes",
                                         "alignment", "sustained", "disk",      "ridges", "limiter"};
    for (int64_t i = 0; i < SL_COUNT(tables); i++)
        CHECK_MSG(sl_results_find(bench_results, tables[i]) != NULL, "there is no table \"%s\"", tables[i]);
    CHECK(bench_number("peaks", 0, "tflops") > 0);
    CHECK(bench_number("links", 3, "gbps") > 0);
    for (int64_t r = 0; r < 4; r++) /* V100's verdicts as published */
        CHECK_STR(bench_text("limiter", r, "limited_by_on_v100"), r == 0 ? "arithmetic" : "memory");
    check_limits();
    check_arithmetic();
    CHECK_NEAR(bench_number("ridges", bench_row("ridges", "machine", "V100, f16, nominal"), "ridge_flop_per_byte"),
               138.9, 0.05);
    CHECK_NEAR(bench_number("ridges", bench_row("ridges", "machine", "H200, bf16, nominal"), "ridge_flop_per_byte"),
               206, 0.5);
    sl_results_json(bench_results, &w);
    CHECK_OK(sl_hardware_parse("system.json", w.text.data, w.text.length, &hw));
    CHECK(hw.shared_cores && hw.peak_flops[SL_F32] > LEAST_FLOPS && hw.matmul_efficiency[SL_F32] <= 1);
    check_derived(&hw, w.text.data);
    CHECK_OK(sl_file_write_atomic(test_path("p.json"), w.text.data, w.text.length));
    sl_text_free(&w.text);
    char command[1024];
    snprintf(command, sizeof command,
             "'%s' plan --hw '%s' --model byte-nano --seqlen 64 --tokens-per-step 128 --json >/dev/null", SL_BINARY,
             test_path("p.json"));
    CHECK_I64(system(command), 0);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(probe);
    RUN(hwloc_agrees_with_sys);
    RUN(sysfs_texts);
    RUN(tables_of_figures);
    RUN(intensities);
    RUN(disk);
    RUN(storage_that_cannot_be_written);
    RUN(profile_carries_the_rates);
    RUN(profile_of_missing_rates);
    RUN(launch_latency);
    RUN(measured);
    sl_results_destroy(bench_results);
    return test_end();
}
