KERNELS

extern "C" size_t workspace_bytes() { return 0; }

LAUNCH {
    unsigned blocks = (unsigned)((OUT0_NUMEL + 255) / 256);
    CALLS
}
