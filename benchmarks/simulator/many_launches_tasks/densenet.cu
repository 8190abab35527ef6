static size_t network(Net net, const float* x, const float* const* p, const float* const* b,
                      float* result) {
    const int layers[] = {6, 12, 24, 16};
    int channels = 2 * DIM_GROWTH;
    Shape at = net.conv2d({x, 3, (int)DIM_SIZE}, *p++, nullptr, channels, 7, 2, 3);
    auto active = [&](Shape y) {
        y = net.positive(net.norm(y, p[0], p[1], b[0], b[1]));
        p += 2;
        b += 2;
        return y;
    };
    at = net.highest(active(at), 3, 2, 1);
    for (int block = 0; block < 4; block++) {
        for (int layer = 0; layer < layers[block]; layer++) {
            Shape grown = active(at);
            grown = net.conv2d(grown, *p++, nullptr, 4 * DIM_GROWTH, 1, 1, 0);
            grown = active(grown);
            grown = net.conv2d(grown, *p++, nullptr, DIM_GROWTH, 3, 1, 1);
            at = net.cat(at, grown);
        }
        if (block < 3) {
            Shape y = active(at);
            at = net.average(net.conv2d(y, *p++, nullptr, at.channels / 2, 1, 1, 0), 2);
        }
    }
    Shape y = active(at);
    y = net.average(y, y.size);
    net.dense(y, p[0], p[1], DIM_CLASSES, result);
    return net.used * sizeof(float);
}

extern "C" size_t workspace_bytes() {
    const float* none[1024] = {};
    return network({nullptr, nullptr, 0}, nullptr, none, none, nullptr);
}

LAUNCH {
    const float* parameters[] = {PARAMETERS};
    const float* buffers[] = {BUFFERS};
    network({(float*)workspace, stream, 0}, x, parameters, buffers, out0);
}
