static size_t network(Net net, const float* x, const float* const* p, float* result) {
    const int counts[] = {2, 2, 3, 3, 3}, multiples[] = {1, 2, 4, 8, 8};
    Shape at = {x, 3, (int)DIM_SIZE};
    for (int block = 0; block < 5; block++) {
        for (int layer = 0; layer < counts[block]; layer++, p += 2)
            at = net.positive(net.conv2d(at, p[0], p[1], multiples[block] * DIM_WIDTH, 3, 1, 1));
        at = net.highest(at, 2, 2, 0);
    }
    at = net.average(at, at.size);
    at = net.positive(net.dense(at, p[0], p[1], 8 * DIM_WIDTH));
    net.dense(at, p[2], p[3], DIM_CLASSES, result);
    return net.used * sizeof(float);
}

extern "C" size_t workspace_bytes() {
    const float* none[64] = {};
    return network({nullptr, nullptr, 0}, nullptr, none, nullptr);
}

LAUNCH {
    const float* parameters[] = {PARAMETERS};
    network({(float*)workspace, stream, 0}, x, parameters, out0);
}
