/* The device without arithmetic, for tests: see device.c. */
#ifndef SL_DEVICE_SIM_SIM_H
#define SL_DEVICE_SIM_SIM_H

#include "device/device.h"

extern const sl_device_class sl_device_sim;

/* What a launch does on this device, at once: every output's bytes become a function of op, attributes, types, accumulate bits
 * and all bytes it reads. Tests use it to run a program without a plan. */
void sl_sim_run(const sl_launch *launch);

/* The two halves of it, with time in between for others to do harm. */
uint64_t sl_sim_launch_begin(const sl_launch *launch);
void sl_sim_launch_end(const sl_launch *launch, uint64_t begun);

#endif
