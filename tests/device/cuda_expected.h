/*
 * Whether a test can use a GPU, and whether it must. Tests skip their GPU part on machines without one; a GPU that is there but cannot
 * be used (the plugin is missing, does not load, or refuses) is a failure, not a skip.
 *
 * A GPU is expected where there is an NVIDIA device node, CUDA_VISIBLE_DEVICES does not hide it, and this build has a plugin. The
 * driver's folder in /proc is no sign: a container shares it with its host without having the device. SLUICE_TEST_EXPECT_CUDA=1 or
 * 0 decides instead; SLUICE_TEST_DEVICE=cuda expects one as well.
 */
#ifndef SL_TESTS_DEVICE_CUDA_EXPECTED_H
#define SL_TESTS_DEVICE_CUDA_EXPECTED_H

#include "device/device.h"
#include "test.h"

static inline bool test_cuda_expected(void)
{
    const char *expect = getenv("SLUICE_TEST_EXPECT_CUDA"), *asked = getenv("SLUICE_TEST_DEVICE");
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (expect)
        return strcmp(expect, "0") != 0;
    if (asked && strcmp(asked, "cuda") == 0)
        return true;
    if (visible && (!visible[0] || strcmp(visible, "-1") == 0))
        return false;
#ifdef SL_HAS_CUDA_PLUGIN
    char node[32];
    for (int i = 0; i < 64; i++) {
        snprintf(node, sizeof node, "/dev/nvidia%d", i);
        if (access(node, F_OK) == 0)
            return true;
    }
#endif
    return false;
}

/* Reports `message` (why the GPU cannot be used) as a failure where one is expected. */
static inline void test_cuda_missing(const char *message)
{
    CHECK_MSG(!test_cuda_expected(), "a GPU is expected but cannot be used: %s", message);
    printf("no GPU: its part is skipped: %s\n", message);
}

/* Whether there is a GPU to test on. */
static inline bool test_cuda(void)
{
    const sl_device_class *class;
    if (sl_device_find("cuda", &class) == SL_OK)
        return true;
    test_cuda_missing(sl_error_message());
    return false;
}

#endif
