/* What launch() promised, as both devices hold a candidate's host half to it: the stand-in runtime
 * (simt/runtime) and the checks before the real one (cuda/host_calls.c). */
#ifndef LAUNCH_CONTRACT_H
#define LAUNCH_CONTRACT_H

#include <driver_types.h>

#pragma GCC visibility push(hidden)

/* Add a line to the faults: the kind, a tab, the message. Lines that do not fit are dropped. */
void fault(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The faults since the last clear_faults(), one a line. */
const char *fault_lines(void);
void clear_faults(void);
/* Whether a launch may carry this attribute: none that keeps data in the L2. */
int attribute_allowed(cudaLaunchAttributeID id);

#pragma GCC visibility pop

#endif
