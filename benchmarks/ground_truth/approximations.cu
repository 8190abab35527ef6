// How far the special function unit's approximations of single precision are off: one line of CSV for
// each function, sign and exponent of the operand, over all mantissas, against double precision.
// *_turns: against the function of what is left of the operand as turns, cut off to a float.
#include <cstdio>

enum { TANH, SIN, COS, EX2, LG2, RCP, RSQRT, SQRT, DIV, SIN_TURNS, COS_TURNS, FUNCTIONS };
const char* names[] = {"tanh", "sin", "cos", "ex2", "lg2", "rcp", "rsqrt", "sqrt", "div", "sin_turns", "cos_turns"};

#define APPROXIMATION(NAME)                                             \
  __device__ float NAME(float x) {                                      \
    float y;                                                            \
    asm(#NAME ".approx.f32 %0, %1;" : "=f"(y) : "f"(x));                \
    return y;                                                           \
  }
namespace unit {
APPROXIMATION(tanh) APPROXIMATION(sin) APPROXIMATION(cos) APPROXIMATION(ex2)
APPROXIMATION(lg2) APPROXIMATION(rcp) APPROXIMATION(rsqrt) APPROXIMATION(sqrt)
}

__device__ float approximate(int function, float x) {
  switch (function) {
    case TANH: return unit::tanh(x);
    case SIN: case SIN_TURNS: return unit::sin(x);
    case COS: case COS_TURNS: return unit::cos(x);
    case EX2: return unit::ex2(x);
    case LG2: return unit::lg2(x);
    case RCP: return unit::rcp(x);
    case RSQRT: return unit::rsqrt(x);
    case SQRT: return unit::sqrt(x);
    default: return __fdividef(1.7f, x);
  }
}

__device__ double exact(int function, float x) {
  double turned = 6.283185307179586 * __fmul_rz(x, 0.15915494f), wide = x;
  switch (function) {
    case TANH: return tanh(wide);
    case SIN: return sin(wide);
    case COS: return cos(wide);
    case EX2: return exp2(wide);
    case LG2: return log2(wide);
    case RCP: return 1 / wide;
    case RSQRT: return 1 / sqrt(wide);
    case SQRT: return sqrt(wide);
    case DIV: return (double)1.7f / wide;
    case SIN_TURNS: return sin(turned);
    default: return cos(turned);
  }
}

struct Off { double absolute, relative; unsigned rounded, missed; };
__device__ Off off;

__device__ void raise(double* most, double value) {
  atomicMax((unsigned long long*)most, __double_as_longlong(value));
}

__global__ void compare(int function, int exponent, bool negative) {
  float x = __uint_as_float((unsigned)(exponent + 127) << 23 | (blockIdx.x * 256 + threadIdx.x));
  if (negative) x = -x;
  double want = exact(function, x);
  float got = approximate(function, x);
  double away = fabs(got - want);
  if (!(away < 1e30)) return;
  raise(&off.absolute, away);
  if (want) raise(&off.relative, away / fabs(want));
  if (got == (float)want) atomicAdd(&off.rounded, 1);
  else if ((float)want == want) atomicAdd(&off.missed, 1);
}

int main() {
  printf("function,sign,exponent,most_absolute,most_relative,rounded_rightly,exact_and_missed\n");
  for (int function = 0; function < FUNCTIONS; function++)
    for (int negative = 0; negative < (function <= EX2 ? 2 : 1); negative++)
      for (int exponent = -12; exponent < 10; exponent++) {
        Off found = {};
        cudaMemcpyToSymbol(off, &found, sizeof found);
        compare<<<1 << 15, 256>>>(function, exponent, negative);
        cudaMemcpyFromSymbol(&found, off, sizeof found);
        printf("%s,%c,%d,%.3g,%.3g,%.3f,%u\n", names[function], negative ? '-' : '+', exponent,
               found.absolute, found.relative, found.rounded / 8388608.0, found.missed);
      }
}
