#include "task.cuh"

namespace {

constexpr int WIDTH = 4;   // elements a vector, loaded and stored at once
constexpr int FACTOR = 4;  // vectors a thread, interleaved by the block's width
constexpr long long TOTAL = OUT0_NUMEL;
constexpr int STEPS = (int)DIM_STEPS;
constexpr int CHANNELS = (int)DIM_CHANNELS;
constexpr int TAPS = (int)DIM_WIDTH;

constexpr int PACK = STEPS % WIDTH == 0 ? WIDTH : 1;
constexpr int HALO_PACKS = (TAPS - 1 + PACK - 1) / PACK;  // whole vectors before the thread's own
constexpr int HALO = HALO_PACKS * PACK;
constexpr int PACKS_A_ROW = STEPS / PACK;
constexpr unsigned PACKS = (unsigned)(TOTAL / PACK);
static_assert(TOTAL < (1LL << 31), "32-bit indices");

// a block is one row where it can be
constexpr bool ROW_A_BLOCK = PACKS_A_ROW % (32 * FACTOR) == 0 && PACKS_A_ROW / FACTOR >= 64 && PACKS_A_ROW / FACTOR <= 1024;
constexpr int THREADS = ROW_A_BLOCK ? PACKS_A_ROW / FACTOR : 256;
constexpr int PACKS_A_BLOCK = THREADS * FACTOR;

constexpr bool power_of_two(int n) { return (n & (n - 1)) == 0; }
constexpr int TAP_PACK = power_of_two(TAPS) && TAPS <= 4 ? TAPS : 1;

template <int N>
struct alignas(N * sizeof(float)) Pack {
    float v[N];
};

struct Filter {
    float taps[TAPS];
    float bias;
};

__device__ __forceinline__ Filter load_filter(const float* __restrict__ weight, const float* __restrict__ bias, int c) {
    Filter f;
#pragma unroll
    for (int k = 0; k < TAPS; k += TAP_PACK) {
        const Pack<TAP_PACK> w = *reinterpret_cast<const Pack<TAP_PACK>*>(weight + c * TAPS + k);
#pragma unroll
        for (int j = 0; j < TAP_PACK; ++j) f.taps[k + j] = w.v[j];
    }
    f.bias = bias[c];
    return f;
}

__global__ void __launch_bounds__(THREADS)
conv_silu_gate_kernel(float* __restrict__ out, const float* __restrict__ x,
                      const float* __restrict__ gate,
                      const float* __restrict__ weight, const float* __restrict__ bias) {
    const unsigned first = blockIdx.x * PACKS_A_BLOCK + threadIdx.x;
    const Pack<PACK>* xs = reinterpret_cast<const Pack<PACK>*>(x);
    const Pack<PACK>* gates = reinterpret_cast<const Pack<PACK>*>(gate);
    Pack<PACK>* outs = reinterpret_cast<Pack<PACK>*>(out);

    float window[FACTOR][HALO + PACK];
    Pack<PACK> g[FACTOR];
#pragma unroll
    for (int f = 0; f < FACTOR; ++f) {
        const unsigned p = first + f * THREADS;
        const int in_row = ROW_A_BLOCK ? (int)threadIdx.x + f * THREADS : (int)(p % PACKS_A_ROW);
        const bool exists = ROW_A_BLOCK || p < PACKS;
        Pack<PACK> own = {};
        g[f] = Pack<PACK>{};
        if (exists) {
            own = xs[p];
            g[f] = gates[p];
        }
#pragma unroll
        for (int h = 0; h < HALO_PACKS; ++h) {
            Pack<PACK> before = {};
            if (exists && in_row >= HALO_PACKS - h) before = xs[p - (HALO_PACKS - h)];
#pragma unroll
            for (int j = 0; j < PACK; ++j) window[f][h * PACK + j] = before.v[j];
        }
#pragma unroll
        for (int j = 0; j < PACK; ++j) window[f][HALO + j] = own.v[j];
    }

    Filter filter = {};
    if constexpr (ROW_A_BLOCK) filter = load_filter(weight, bias, (int)(blockIdx.x % CHANNELS));
#pragma unroll
    for (int f = 0; f < FACTOR; ++f) {
        const unsigned p = first + f * THREADS;
        if constexpr (!ROW_A_BLOCK) {
            if (p >= PACKS) break;
            filter = load_filter(weight, bias, (int)(p / PACKS_A_ROW % CHANNELS));
        }
        Pack<PACK> result;
#pragma unroll
        for (int j = 0; j < PACK; ++j) {
            float sum = filter.bias;
#pragma unroll
            for (int k = 0; k < TAPS; ++k) sum = fmaf(filter.taps[k], window[f][HALO - (TAPS - 1) + j + k], sum);
            result.v[j] = sum / (1.0f + expf(-sum)) * g[f].v[j];
        }
        outs[p] = result;
    }
}

}  // namespace

extern "C" void launch(float* out0, const float* x, const float* gate, const float* conv_weight, const float* conv_bias, void* workspace, cudaStream_t stream) {
    const unsigned blocks = (PACKS + PACKS_A_BLOCK - 1) / PACKS_A_BLOCK;
    conv_silu_gate_kernel<<<blocks, THREADS, 0, stream>>>(out0, x, gate, conv_weight, conv_bias);
}
