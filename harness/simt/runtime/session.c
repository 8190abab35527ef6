/* What Python opens the runtime with: the GPU, the stream, and whom launches are handed to. */
#include "runtime.h"

kb_gpu gpu;
kb_launch_callback launch_callback;
static void *given_stream;

void *kb_open(const kb_gpu *properties, uint64_t bytes, kb_launch_callback callback, void *stream) {
    gpu = *properties;
    launch_callback = callback;
    given_stream = stream;
    return open_arena(bytes);
}

int wrong_stream(const char *what, void *stream) {
    if (stream == given_stream) return 0;
    fault("forbidden", "%s on %s instead of the stream given to launch()", what,
          stream ? "another stream" : "the default stream");
    return 1;
}
