/* FLOP per cycle: what is decided from a CPU's identity and a measurement, and what is measured on this machine. */
#include "device/cpu/runtime/cpu.h"
#include "device/cpu/runtime/throughput.h"
#include "test.h"

static sl_cpu_throughput decide(sl_isa isa, const char *vendor, int family, int model, double measured)
{
    sl_cpu_identity cpu = {.family = family, .model = model};
    snprintf(cpu.vendor, sizeof cpu.vendor, "%s", vendor);
    return sl_cpu_throughput_decide(isa, &cpu, measured);
}

#define AMD "AuthenticAMD"
#define INTEL "GenuineIntel"

TEST(known_models)
{
    static const struct {
        const char *what, *vendor;
        int family, model;
        sl_isa isa;
        double flop;
    } cases[] = {
        {"Zen", AMD, 0x17, 0x01, SL_ISA_AVX2, 16},
        {"Zen+", AMD, 0x17, 0x18, SL_ISA_AVX2, 16},
        {"Zen 2", AMD, 0x17, 0x31, SL_ISA_AVX2, 32},
        {"Zen 3, Milan", AMD, 0x19, 0x01, SL_ISA_AVX2, 32},
        {"Zen 3, desktop", AMD, 0x19, 0x21, SL_ISA_AVX2, 32},
        {"Zen 4, Genoa", AMD, 0x19, 0x11, SL_ISA_AVX512, 32},
        {"Zen 4, first server model", AMD, 0x19, 0x10, SL_ISA_AVX512, 32},
        {"Zen 4, last server model", AMD, 0x19, 0x1f, SL_ISA_AVX512, 32},
        {"Zen 4, desktop", AMD, 0x19, 0x61, SL_ISA_AVX512, 32},
        {"Zen 4, Bergamo", AMD, 0x19, 0xa0, SL_ISA_AVX512, 32},
        {"Zen 4, last model", AMD, 0x19, 0xaf, SL_ISA_AVX512, 32},
        {"Zen 4 with AVX2 kernels", AMD, 0x19, 0x11, SL_ISA_AVX2, 32},
        {"Zen 5, Turin", AMD, 0x1a, 0x02, SL_ISA_AVX512, 64},
        {"Zen 5, Turin dense", AMD, 0x1a, 0x11, SL_ISA_AVX512, 64},
        {"Zen 5, laptop", AMD, 0x1a, 0x24, SL_ISA_AVX512, 32},
        {"Zen 5, desktop", AMD, 0x1a, 0x44, SL_ISA_AVX512, 64},
        {"Zen 5, small laptop", AMD, 0x1a, 0x60, SL_ISA_AVX512, 32},
        {"Ice Lake, client", INTEL, 6, 0x7e, SL_ISA_AVX512, 32},
        {"Tiger Lake", INTEL, 6, 0x8c, SL_ISA_AVX512, 32},
        {"Rocket Lake", INTEL, 6, 0xa7, SL_ISA_AVX512, 32},
        {"Ice Lake, server", INTEL, 6, 0x6a, SL_ISA_AVX512, 64},
        {"Sapphire Rapids", INTEL, 6, 0x8f, SL_ISA_AVX512, 64},
        {"Haswell", INTEL, 6, 0x3c, SL_ISA_AVX2, 32},
    };
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        sl_cpu_throughput t = decide(cases[i].isa, cases[i].vendor, cases[i].family, cases[i].model, 0);
        CHECK_MSG(t.f32 == cases[i].flop, "%s: %g FLOP per cycle, %g expected", cases[i].what, t.f32, cases[i].flop);
        CHECK_NEAR(t.bf16, t.f32, 0);
        CHECK_STR(t.source, "known for this CPU model");
    }
}

/* Another program on the core lowers a measurement, nothing raises it. */
TEST(measured_and_known)
{
    sl_cpu_throughput t = decide(SL_ISA_AVX512, AMD, 0x1a, 0x02, 32); /* its sibling thread is busy */
    CHECK_NEAR(t.f32, 64, 0);
    CHECK_STR(t.source, "known for this CPU model");
    CHECK_NEAR(t.measured, 32, 0);
    t = decide(SL_ISA_AVX512, AMD, 0x19, 0x11, 63.5); /* the table would be wrong */
    CHECK_NEAR(t.f32, 64, 0);
    CHECK_STR(t.source, "measured");
    t = decide(SL_ISA_AVX512, AMD, 0x19, 0x11, 31.9);
    CHECK_NEAR(t.f32, 32, 0);
    CHECK_STR(t.source, "measured");
    t = decide(SL_ISA_AVX512, AMD, 0x19, 0x11, 47); /* near nothing */
    CHECK_NEAR(t.f32, 32, 0);
    CHECK_STR(t.source, "known for this CPU model");
}

/* Products of one model differ, and so do models nobody has listed: the measurement decides. */
TEST(measured_alone)
{
    CHECK_NEAR(decide(SL_ISA_AVX512, INTEL, 6, 0x55, 31.7).f32, 32, 0); /* one unit */
    CHECK_NEAR(decide(SL_ISA_AVX512, INTEL, 6, 0x55, 62.8).f32, 64, 0); /* two */
    CHECK_NEAR(decide(SL_ISA_AVX512, "NewVendor", 99, 1, 33).f32, 32, 0);
    CHECK_NEAR(decide(SL_ISA_AVX2, "NewVendor", 99, 1, 15.5).f32, 16, 0);
    CHECK_NEAR(decide(SL_ISA_AVX2, "NewVendor", 99, 1, 31).f32, 32, 0);
    CHECK_STR(decide(SL_ISA_AVX512, "NewVendor", 99, 1, 33).source, "measured");
    CHECK_STR(decide(SL_ISA_AVX512, AMD, 0x19, 0x01, 33).source, "measured"); /* a Zen 3 has no such instructions */
}

TEST(assumed)
{
    static const double odd[] = {0, 1, 26.9, 35.3, 45, 54, 71, 128, 1e9, -5};
    for (int64_t i = 0; i < SL_COUNT(odd); i++) {
        sl_cpu_throughput t = decide(SL_ISA_AVX512, INTEL, 6, 0x55, odd[i]);
        CHECK_MSG(t.f32 == 64, "%g measured: %g", odd[i], t.f32);
        CHECK_STR(t.source, "assumed for the instruction set");
    }
    CHECK_NEAR(decide(SL_ISA_AVX2, INTEL, 6, 0xff, 0).f32, 32, 0);
    CHECK_NEAR(decide(SL_ISA_SCALAR, AMD, 0x19, 0x11, 32).f32, 2, 0);
    CHECK_NEAR(decide(SL_ISA_SCALAR, AMD, 0x19, 0x11, 32).bf16, 2, 0);
}

TEST(tiles)
{
    sl_cpu_throughput t = decide(SL_ISA_AMX, INTEL, 6, 0x8f, 0);
    CHECK_NEAR(t.f32, 64, 0);
    CHECK_NEAR(t.bf16, 1024, 0);
}

/* The FMA kernels count their work right, and this machine's figure is one that exists. A busy machine can halve it. */
TEST(this_machine)
{
    sl_isa isa;
    sl_cpu_identity cpu;
    double flops = 0;
    CHECK_OK(sl_isa_detect(&isa));
    const sl_fma_kernel *kernel = sl_fma_kernel_find(isa);
    CHECK((kernel != NULL) == (isa > SL_ISA_SCALAR));
    if (!kernel)
        return;
    CHECK(sl_fma_kernel_find(SL_ISA_SCALAR) == NULL);
    CHECK(kernel->f32(10, &flops) > 0);
    CHECK_NEAR(flops, 2 * 10 * 12 * (isa >= SL_ISA_AVX512 ? 16 : 8), 0);
    CHECK(kernel->f64(10, &flops) > 0);
    CHECK_NEAR(flops, 2 * 10 * 12 * (isa >= SL_ISA_AVX512 ? 8 : 4), 0);
    sl_cpu_identify(&cpu);
    CHECK(cpu.vendor[0] && cpu.family > 0);
    sl_cpu_throughput t = sl_cpu_throughput_of(isa);
    printf("%s family %d model %d: %.0f FLOP per cycle (%s), %.2f measured at %.1f GHz\n", cpu.vendor, cpu.family,
           cpu.model, t.f32, t.source, t.measured, 1e-9 * t.hz);
    CHECK(t.f32 == 16 || t.f32 == 32 || t.f32 == 64);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* All of it, or half where a sibling thread is busy. */
    double ratio = t.measured / t.f32, unused;
    for (int i = 0; i < 20 && !(ratio > 0.9 && ratio < 1.1) && !(ratio > 0.4 && ratio < 0.65); i++)
        ratio = sl_cpu_throughput_measure(isa, &unused) / t.f32;
    CHECK_MSG((ratio > 0.9 && ratio < 1.1) || (ratio > 0.4 && ratio < 0.65), "measured %.2f of %.0f", ratio * t.f32,
              t.f32);
#endif
    CHECK_NEAR(sl_cpu_throughput_of(isa).measured, t.measured, 0); /* once per process */
    CHECK_MSG(t.hz > 4e8 && t.hz < 8e9, "%.3g Hz", t.hz);
}

/* The peak that MFU is measured against follows from it: half as high on a Zen 4 as on a Zen 5 of the same clock. */
TEST(peak)
{
    sl_cpu_throughput zen4 = decide(SL_ISA_AVX512, AMD, 0x19, 0x11, 0),
                      zen5 = decide(SL_ISA_AVX512, AMD, 0x1a, 0x02, 0), tiles = decide(SL_ISA_AMX, INTEL, 6, 0x8f, 0),
                      here;
    sl_hardware a, b, c, two, device_s = {0};
    CHECK_OK(sl_cpu_throughput_here(&here));
    sl_cpu_profile(SL_ISA_AVX512, 1, &zen4, &a);
    sl_cpu_profile(SL_ISA_AVX512, 1, &zen5, &b);
    sl_cpu_profile(SL_ISA_AMX, 1, &tiles, &c);
    CHECK(here.hz >= 0 && fmod(here.hz, 1e8) == 0);
    zen4.hz = 9e9; /* what the clock reaches at the moment must not change plans */
    sl_cpu_profile(SL_ISA_AVX512, 1, &zen4, &two);
    CHECK_NEAR(two.peak_flops[SL_F32] / a.peak_flops[SL_F32], 1, 0.5);
    sl_cpu_profile(SL_ISA_AVX512, 2, &zen4, &two);
    CHECK_NEAR(two.peak_flops[SL_F32] / a.peak_flops[SL_F32], SL_MIN(2, sl_pool_cores()), 0.5);
    double hz = a.peak_flops[SL_F32] / 32; /* the clock is what is left, and may change between the calls */
    CHECK_MSG(hz > 4e8 && hz < 8e9, "%.3g Hz", hz);
    CHECK_NEAR(b.peak_flops[SL_F32] / a.peak_flops[SL_F32], 2, 0.5);
    CHECK_NEAR(a.peak_flops[SL_BF16], a.peak_flops[SL_F32], 0);
    CHECK_NEAR(c.peak_flops[SL_BF16] / c.peak_flops[SL_F32], 16, 1e-9);
    /* And the device uses this machine's. */
    sl_isa isa;
    sl_device *device;
    sl_device_config config = {.threads = 1, .max_commands = 1, .max_events = 1};
    CHECK_OK(sl_isa_detect(&isa));
    CHECK_OK(sl_device_open("cpu", &config, &device));
    device->class->hardware(device, &device_s);
    sl_device_close(device);
    sl_cpu_profile(isa, 1, &here, &b);
    CHECK_NEAR(device_s.peak_flops[SL_F32] / b.peak_flops[SL_F32], 1, 0.1);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(known_models);
    RUN(measured_and_known);
    RUN(measured_alone);
    RUN(assumed);
    RUN(tiles);
    RUN(this_machine);
    RUN(peak);
    return test_end();
}
