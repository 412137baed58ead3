/* A step's scopes as NVTX ranges, in a domain of their own: `nsys profile --trace cuda,nvtx sluice train ...` shows Step, Round,
 * Layer, Chunk and Op above the kernels they issued. NVTX is headers alone; a profiler puts its functions behind them. Without one
 * no domain can be made, which is how its absence is noticed: a step then costs one call of this. SLUICE_NVTX=1 has ranges all
 * the same (for tools that know no domains), 0 never. */
#include "device/cuda/runtime/nvtx.h"

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static nvtxDomainHandle_t domain;
static bool wanted;

static void look_for_profiler(void)
{
    const char *asked = getenv("SLUICE_NVTX");
    if (asked && strcmp(asked, "0") == 0)
        return;
    domain = nvtxDomainCreateA("sluice");
    wanted = domain || (asked && strcmp(asked, "1") == 0);
}

bool sl_cuda_scope(sl_device *device, sl_scope level, const char *name)
{
    static const uint32_t colours[] = {0xff4c72b0, 0xff55a868, 0xffc44e52, 0xff8172b2, 0xffccb974}; /* by level */
    (void) device;
    pthread_once(&once, look_for_profiler);
    if (!wanted)
        return false;
    if (!name) {
        nvtxDomainRangePop(domain);
        return true;
    }
    nvtxEventAttributes_t attributes = {
        .version = NVTX_VERSION,
        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
        .category = (uint32_t) level + 1,
        .colorType = NVTX_COLOR_ARGB,
        .color = colours[level],
        .messageType = NVTX_MESSAGE_TYPE_ASCII,
        .message.ascii = name,
    };
    nvtxDomainRangePushEx(domain, &attributes);
    return true;
}
