__global__ void gates(const float* x, long long x_step, const float* h, const float* w_x,
                      const float* w_h, const float* b_x, const float* b_h, float* y, int inner) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= DIM_BATCH * 4 * DIM_HIDDEN) return;
    int gate = i % (4 * DIM_HIDDEN), row = i / (4 * DIM_HIDDEN);
    float sum = b_x[gate] + b_h[gate];
    for (int k = 0; k < inner; k++) sum += x[row * x_step + k] * w_x[gate * inner + k];
    if (h)
        for (int k = 0; k < DIM_HIDDEN; k++)
            sum += h[row * DIM_STEPS * DIM_HIDDEN + k] * w_h[gate * DIM_HIDDEN + k];
    y[i] = sum;
}

__global__ void cell(const float* gates, float* c, float* h, bool first) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= DIM_BATCH * DIM_HIDDEN) return;
    int unit = i % DIM_HIDDEN, row = i / DIM_HIDDEN;
    const float* mine = gates + row * 4 * DIM_HIDDEN + unit;
    float in = 1.0f / (1.0f + expf(-mine[0])), forget = 1.0f / (1.0f + expf(-mine[DIM_HIDDEN]));
    float new_ = tanhf(mine[2 * DIM_HIDDEN]), out = 1.0f / (1.0f + expf(-mine[3 * DIM_HIDDEN]));
    float now = in * new_ + (first ? 0.0f : forget * c[i]);
    c[i] = now;
    h[row * DIM_STEPS * DIM_HIDDEN + unit] = out * tanhf(now);
}

__global__ void last_step(const float* h, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < DIM_BATCH * DIM_HIDDEN) y[i] = h[(i / DIM_HIDDEN * DIM_STEPS + DIM_STEPS - 1) * DIM_HIDDEN + i % DIM_HIDDEN];
}

extern "C" size_t workspace_bytes() {
    return sizeof(float) * (6 * DIM_BATCH * DIM_HIDDEN + DIM_LAYERS * DIM_BATCH * DIM_STEPS * DIM_HIDDEN);
}

LAUNCH {
    const float* weights[][4] = {{lstm_weight_ih_l0, lstm_weight_hh_l0, lstm_bias_ih_l0, lstm_bias_hh_l0},
                                 {lstm_weight_ih_l1, lstm_weight_hh_l1, lstm_bias_ih_l1, lstm_bias_hh_l1},
                                 {lstm_weight_ih_l2, lstm_weight_hh_l2, lstm_bias_ih_l2, lstm_bias_hh_l2}};
    float *all = (float*)workspace, *c = all + 4 * DIM_BATCH * DIM_HIDDEN, *end = c + DIM_BATCH * DIM_HIDDEN;
    float* states = end + DIM_BATCH * DIM_HIDDEN;
    const float* from = x;
    int inner = DIM_INPUT;
    for (int layer = 0; layer < DIM_LAYERS; layer++) {
        for (int step = 0; step < DIM_STEPS; step++) {
            float* h = states + step * DIM_HIDDEN;
            gates<<<(DIM_BATCH * 4 * DIM_HIDDEN + 255) / 256, 256, 0, stream>>>(
                from + step * inner, DIM_STEPS * inner, step ? h - DIM_HIDDEN : nullptr, weights[layer][0],
                weights[layer][1], weights[layer][2], weights[layer][3], all, inner);
            cell<<<(DIM_BATCH * DIM_HIDDEN + 255) / 256, 256, 0, stream>>>(all, c, h, step == 0);
        }
        from = states;
        states += DIM_BATCH * DIM_STEPS * DIM_HIDDEN;
        inner = DIM_HIDDEN;
    }
    last_step<<<(DIM_BATCH * DIM_HIDDEN + 255) / 256, 256, 0, stream>>>(from, end);
    linear<<<(DIM_BATCH * DIM_CLASSES + 255) / 256, 256, 0, stream>>>(end, last_weight, last_bias, out0,
                                                             DIM_BATCH, DIM_CLASSES, DIM_HIDDEN);
}
