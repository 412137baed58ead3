/* A guess at this machine from what the system says of it: enough to plan with before anything was measured. The peak is arithmetic
 * per cycle and core (throughput.h) times the nominal clock: the measured one changes from run to run, and a plan must not. */
#include <stdio.h>
#include <string.h>

#include "core/memory_limit.h"
#include "device/cpu/runtime/cpu.h"

/* Hz; the nominal one where the system tells, 2.5e9 otherwise. */
static double core_frequency(void)
{
    double mhz = 0;
    char line[256];
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency", "r");
    if (file) {
        double khz = 0;
        if (fscanf(file, "%lf", &khz) == 1)
            mhz = khz * 1e-3;
        fclose(file);
    }
    if (mhz <= 0 && (file = fopen("/proc/cpuinfo", "r"))) {
        while (mhz <= 0 && fgets(line, sizeof line, file))
            if (sscanf(line, "cpu MHz : %lf", &mhz) != 1)
                mhz = 0;
        fclose(file);
    }
    return mhz > 0 ? mhz * 1e6 : 2.5e9;
}

void sl_cpu_profile(sl_isa isa, int threads, const sl_cpu_throughput *per_cycle, sl_hardware *hardware)
{
    int cores = SL_MIN(threads, sl_pool_cores()); /* more threads than cores share what there is */
    double cycles = core_frequency() * cores;
    *hardware = (sl_hardware){
        .peak_flops = {[SL_F32] = per_cycle->f32 * cycles, [SL_BF16] = per_cycle->bf16 * cycles},
        .matmul_efficiency = {[SL_F32] = isa == SL_ISA_AMX ? 0.5 : 0.75, [SL_BF16] = isa == SL_ISA_AMX ? 0.5 : 0.75},
        .attention_efficiency = {[SL_F32] = {0.4, 0.35}, [SL_BF16] = {0.4, 0.35}},
        .memory_bandwidth = {8e9 * cores + 4e9, 8e9 * cores + 4e9},
        .link_bandwidth = {9e9, 9e9},
        .link_bandwidth_both = 8e9,
        .link_latency_s = 3e-6,
        .launch_latency_s = 3e-6,
        .host_optimizer_bandwidth = 7e9 * cores + 3e9,
        .shared_cores = true,
    };
    snprintf(hardware->name, sizeof hardware->name, "cpu %s, %d thread%s", sl_isa_name(isa), threads,
             threads == 1 ? "" : "s");
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        hardware->memory_bytes[tier] = sl_memory_bytes();
}
