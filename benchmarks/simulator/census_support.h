// Read before each driver of the census: its tensors lie in the simulated GPU's memory.
#include <c10/core/CPUAllocator.h>
#include <cuda_runtime.h>
#include <torch/torch.h>

#include <cmath>
#include <iostream>
#include <limits>
#include <vector>

namespace census {

// Tensors are as long-lived as the program: nothing is given back.
struct Allocator final : c10::Allocator {
    c10::DataPtr allocate(size_t bytes) override {
        void *address = nullptr;
        if (bytes) cudaMalloc(&address, bytes);
        return {address, address, [](void *) {}, c10::DeviceType::CPU};
    }
    c10::DeleterFnPtr raw_deleter() const override { return [](void *) {}; }
    void copy_data(void *to, const void *from, size_t bytes) const override {
        default_copy_data(to, from, bytes);
    }
};

// The driver's own comparison, and how far apart the two are.
inline bool close(const at::Tensor &a, const at::Tensor &b, double relative = 1e-5,
                  double absolute = 1e-8, bool equal_nan = false) {
    auto left = a.to(at::kDouble), right = b.to(at::kDouble);
    if (left.sizes() == right.sizes() && left.numel())
        std::cout << "census-difference " << (left - right).abs().max().item<double>() << " of "
                  << right.abs().max().item<double>() << std::endl;
    return at::allclose(left, right, relative, absolute, equal_nan);
}

}  // namespace census

namespace torch {
using census::close;
}

int census_main();

extern "C" int census_run() {
    static census::Allocator allocator;
    c10::SetCPUAllocator(&allocator, 255);
    at::set_num_threads(1);
    torch::manual_seed(1);
    try {
        return census_main();
    } catch (const std::exception &error) {
        std::cout << "census-exception " << error.what() << std::endl;
        return 99;
    }
}

#define main census_main
#define allclose close
