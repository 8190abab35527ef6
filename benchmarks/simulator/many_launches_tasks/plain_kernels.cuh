// One plain kernel for each operation, as a first version has them: a thread for each result.
#include "task.cuh"

__global__ void conv(const float* x, const float* w, const float* bias, float* y, int batch,
                     int channels, int size, int filters, int width, int stride, int padding,
                     int out) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= (long long)batch * filters * out * out) return;
    int column = i % out, row = i / out % out, filter = i / out / out % filters;
    int image = i / out / out / filters;
    float sum = bias ? bias[filter] : 0.0f;
    for (int c = 0; c < channels; c++)
        for (int dy = 0; dy < width; dy++)
            for (int dx = 0; dx < width; dx++) {
                int at_y = row * stride + dy - padding, at_x = column * stride + dx - padding;
                if (at_y >= 0 && at_y < size && at_x >= 0 && at_x < size)
                    sum += x[((image * channels + c) * size + at_y) * size + at_x] *
                           w[((filter * channels + c) * width + dy) * width + dx];
            }
    y[i] = sum;
}

__global__ void batch_norm(const float* x, const float* weight, const float* bias,
                           const float* mean, const float* var, float* y, int channels, int area,
                           long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    int c = i / area % channels;
    y[i] = (x[i] - mean[c]) / sqrtf(var[c] + 1e-5f) * weight[c] + bias[c];
}

__global__ void relu(const float* x, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}

__global__ void concat(const float* a, const float* b, float* y, int first, int second, int area,
                       long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    int both = first + second;
    int at = i % area, c = i / area % both, image = i / area / both;
    y[i] = c < first ? a[((long long)image * first + c) * area + at]
                     : b[((long long)image * second + c - first) * area + at];
}

__global__ void max_pool(const float* x, float* y, int size, int width, int stride, int padding,
                         int out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    int column = i % out, row = i / out % out;
    const float* plane = x + i / out / out * size * size;
    float most = -INFINITY;
    for (int dy = 0; dy < width; dy++)
        for (int dx = 0; dx < width; dx++) {
            int at_y = row * stride + dy - padding, at_x = column * stride + dx - padding;
            if (at_y >= 0 && at_y < size && at_x >= 0 && at_x < size)
                most = fmaxf(most, plane[at_y * size + at_x]);
        }
    y[i] = most;
}

__global__ void average_pool(const float* x, float* y, int size, int width, int out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    int column = i % out, row = i / out % out;
    const float* plane = x + i / out / out * size * size;
    float sum = 0.0f;
    for (int dy = 0; dy < width; dy++)
        for (int dx = 0; dx < width; dx++)
            sum += plane[(row * width + dy) * size + column * width + dx];
    y[i] = sum / (width * width);
}

__global__ void linear(const float* x, const float* w, const float* bias, float* y, int rows,
                       int columns, int inner) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * columns) return;
    float sum = bias[i % columns];
    for (int k = 0; k < inner; k++)
        sum += x[i / columns * (long long)inner + k] * w[i % columns * (long long)inner + k];
    y[i] = sum;
}

struct Shape {
    const float* data;
    int channels, size;
};

// Takes each result's place behind the one before; without a stream it only counts.
struct Net {
    float* next;
    cudaStream_t stream;
    size_t used;

    float* take(long long count) {
        float* place = next ? next + used : nullptr;
        used += (count + 63) / 64 * 64;
        return place;
    }
    static unsigned blocks(long long count) { return (unsigned)((count + 255) / 256); }
    Shape conv2d(Shape x, const float* w, const float* bias, int filters, int width, int stride,
                 int padding) {
        int out = (x.size + 2 * padding - width) / stride + 1;
        long long n = (long long)DIM_BATCH * filters * out * out;
        float* y = take(n);
        if (stream)
            conv<<<blocks(n), 256, 0, stream>>>(x.data, w, bias, y, DIM_BATCH, x.channels, x.size,
                                                filters, width, stride, padding, out);
        return {y, filters, out};
    }
    Shape norm(Shape x, const float* weight, const float* bias, const float* mean,
               const float* var) {
        long long n = (long long)DIM_BATCH * x.channels * x.size * x.size;
        float* y = take(n);
        if (stream)
            batch_norm<<<blocks(n), 256, 0, stream>>>(x.data, weight, bias, mean, var, y,
                                                      x.channels, x.size * x.size, n);
        return {y, x.channels, x.size};
    }
    Shape positive(Shape x) {
        long long n = (long long)DIM_BATCH * x.channels * x.size * x.size;
        float* y = take(n);
        if (stream) relu<<<blocks(n), 256, 0, stream>>>(x.data, y, n);
        return {y, x.channels, x.size};
    }
    Shape cat(Shape a, Shape b) {
        int area = a.size * a.size;
        long long n = (long long)DIM_BATCH * (a.channels + b.channels) * area;
        float* y = take(n);
        if (stream)
            concat<<<blocks(n), 256, 0, stream>>>(a.data, b.data, y, a.channels, b.channels, area,
                                                  n);
        return {y, a.channels + b.channels, a.size};
    }
    Shape highest(Shape x, int width, int stride, int padding) {
        int out = (x.size + 2 * padding - width) / stride + 1;
        long long n = (long long)DIM_BATCH * x.channels * out * out;
        float* y = take(n);
        if (stream)
            max_pool<<<blocks(n), 256, 0, stream>>>(x.data, y, x.size, width, stride, padding, out,
                                                    n);
        return {y, x.channels, out};
    }
    Shape average(Shape x, int width) {
        int out = x.size / width;
        long long n = (long long)DIM_BATCH * x.channels * out * out;
        float* y = take(n);
        if (stream) average_pool<<<blocks(n), 256, 0, stream>>>(x.data, y, x.size, width, out, n);
        return {y, x.channels, out};
    }
    Shape dense(Shape x, const float* w, const float* bias, int columns, float* given = nullptr) {
        long long n = (long long)DIM_BATCH * columns;
        float* y = given ? given : take(n);
        if (stream)
            linear<<<blocks(n), 256, 0, stream>>>(x.data, w, bias, y, DIM_BATCH, columns, x.channels);
        return {y, columns, 1};
    }
};
