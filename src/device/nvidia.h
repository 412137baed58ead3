/* Is there an NVIDIA GPU that this process may use? Answered from files, before any of its libraries is loaded. */
#ifndef SL_DEVICE_NVIDIA_H
#define SL_DEVICE_NVIDIA_H

#include <stdbool.h>

/* `root` is "" but in tests. May say yes where there is none in the end, never no where there is one. */
bool sl_nvidia_present(const char *root);

#endif
