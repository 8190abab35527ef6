/* What a program may ask of the device. */
#include "runtime.h"

#include <stdio.h>

/* CUDA 12 headers rename this function: offer the plain and the versioned symbol. */
#ifdef cudaGetDeviceProperties
#undef cudaGetDeviceProperties
#endif

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    if (device) return failed(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = gpu.shared_default; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = gpu.shared_optin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = gpu.shared_per_sm; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = gpu.shared_reserved; break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = gpu.registers; break;
    case cudaDevAttrMultiProcessorCount: *value = gpu.sms; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 32 * gpu.warps; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = gpu.blocks; break;
    case cudaDevAttrComputeCapabilityMajor: *value = gpu.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = gpu.minor; break;
    case cudaDevAttrL2CacheSize: *value = (int)gpu.l2_bytes; break;
    case cudaDevAttrClockRate: *value = gpu.clock_khz; break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    default: *value = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    if (device) return failed(cudaErrorInvalidDevice);
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "%.250s", gpu.name);
    properties->major = gpu.major;
    properties->minor = gpu.minor;
    properties->multiProcessorCount = gpu.sms;
    properties->totalGlobalMem = (size_t)gpu.memory_bytes;
    properties->totalConstMem = 65536;
    properties->l2CacheSize = (int)gpu.l2_bytes;
    properties->sharedMemPerBlock = (size_t)gpu.shared_default;
    properties->sharedMemPerBlockOptin = (size_t)gpu.shared_optin;
    properties->sharedMemPerMultiprocessor = (size_t)gpu.shared_per_sm;
    properties->reservedSharedMemPerBlock = (size_t)gpu.shared_reserved;
    properties->regsPerBlock = properties->regsPerMultiprocessor = gpu.registers;
    properties->warpSize = 32;
    properties->cooperativeLaunch = 1;
    properties->unifiedAddressing = 1;
    properties->concurrentKernels = 1;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 32 * gpu.warps;
    properties->maxBlocksPerMultiProcessor = gpu.blocks;
    properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
    properties->maxThreadsDim[2] = 64;
    properties->maxGridSize[0] = 2147483647;
    properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *properties, int device) {
    return cudaGetDeviceProperties(properties, device);
}
