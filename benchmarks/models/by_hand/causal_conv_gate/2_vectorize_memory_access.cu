#include "task.cuh"

namespace {

constexpr int WIDTH = 4;  // elements a thread, loaded and stored as one vector
constexpr int THREADS = 256;
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

constexpr bool power_of_two(int n) { return (n & (n - 1)) == 0; }
constexpr int TAP_PACK = power_of_two(TAPS) && TAPS <= 4 ? TAPS : 1;

template <int N>
struct alignas(N * sizeof(float)) Pack {
    float v[N];
};

__global__ void __launch_bounds__(THREADS)
conv_silu_gate_kernel(float* __restrict__ out, const float* __restrict__ x,
                      const float* __restrict__ gate,
                      const float* __restrict__ weight, const float* __restrict__ bias) {
    const unsigned p = blockIdx.x * THREADS + threadIdx.x;
    if (p >= PACKS) return;
    const unsigned row = p / PACKS_A_ROW;
    const int in_row = (int)(p % PACKS_A_ROW);
    const int c = (int)(row % CHANNELS);

    const Pack<PACK>* xs = reinterpret_cast<const Pack<PACK>*>(x) + p;
    const Pack<PACK> g = reinterpret_cast<const Pack<PACK>*>(gate)[p];
    const Pack<PACK> own = *xs;

    float window[HALO + PACK];
#pragma unroll
    for (int h = 0; h < HALO_PACKS; ++h) {
        Pack<PACK> before = {};
        if (in_row >= HALO_PACKS - h) before = *(xs - (HALO_PACKS - h));
#pragma unroll
        for (int j = 0; j < PACK; ++j) window[h * PACK + j] = before.v[j];
    }
#pragma unroll
    for (int j = 0; j < PACK; ++j) window[HALO + j] = own.v[j];

    float taps[TAPS];
#pragma unroll
    for (int k = 0; k < TAPS; k += TAP_PACK) {
        const Pack<TAP_PACK> w = *reinterpret_cast<const Pack<TAP_PACK>*>(weight + c * TAPS + k);
#pragma unroll
        for (int j = 0; j < TAP_PACK; ++j) taps[k + j] = w.v[j];
    }
    const float b = bias[c];

    Pack<PACK> result;
#pragma unroll
    for (int j = 0; j < PACK; ++j) {
        float sum = b;
#pragma unroll
        for (int k = 0; k < TAPS; ++k) sum = fmaf(taps[k], window[HALO - (TAPS - 1) + j + k], sum);
        result.v[j] = sum / (1.0f + expf(-sum)) * g.v[j];
    }
    reinterpret_cast<Pack<PACK>*>(out)[p] = result;
}

}  // namespace

extern "C" void launch(float* out0, const float* x, const float* gate, const float* conv_weight, const float* conv_bias, void* workspace, cudaStream_t stream) {
    const unsigned blocks = (PACKS + THREADS - 1) / THREADS;
    conv_silu_gate_kernel<<<blocks, THREADS, 0, stream>>>(out0, x, gate, conv_weight, conv_bias);
}
