/* What the census' programs need beside program_runtime.c. */
#include <stddef.h>

/* PyTorch computes its answers on the CPU, in the same tensors: device memory stays open to this
   process. Hidden, so that only the runtime's own call of mprotect is answered here. */
__attribute__((visibility("hidden"))) int mprotect(void *start, size_t bytes, int rights) {
    (void)start, (void)bytes, (void)rights;
    return 0;
}
