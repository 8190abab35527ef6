/* What all tensor-core instructions on floats share: fragments, their product, their place. */
#include "matrix.h"

/* d += a * b, row-major, each product rounded in float: the accumulation order is ours. */
void multiply_floats(const float *a, const float *b, float *d, int rows, int columns, int inner) {
    for (int row = 0; row < rows; row++)
        for (int k = 0; k < inner; k++) {
            float factor = a[row * inner + k];
            for (int column = 0; column < columns; column++)
                d[row * columns + column] += factor * b[k * columns + column];
        }
}

/* Reads a fragment into a row-major matrix. Registers may repeat the fragment (f16 A and B). */
void unpack_fragment(const uint8_t *registers, const int32_t *operands, int type, int rows,
                     int columns, float *matrix) {
    for (int place = 0; place < rows * columns / 64; place++)
        for (int lane = 0; lane < LANES; lane++)
            for (int half = 0; half < 2; half++) {
                int row = fragment_row(place, lane, rows);
                int column = fragment_column(place, lane, rows) + half;
                matrix[row * columns + column] =
                    type == TYPE_F32
                        ? REGISTER(const float, operands[2 * (2 * place + half)])[lane]
                        : half_element(REGISTER(const uint16_t, operands[2 * place])[2 * lane + half],
                                       type == TYPE_BF16);
            }
}

void pack_fragment(uint8_t *registers, const int32_t *operands, int count, int type, int rows,
                   int columns, const float *matrix) {
    int places = rows * columns / 64;
    for (int index = 0; index < count; index++)
        for (int lane = 0; lane < LANES; lane++)
            for (int half = 0; half < 2; half++) {
                int place = type == TYPE_F32 ? index / 2 : index % places;
                float value = matrix[fragment_row(place, lane, rows) * columns +
                                     fragment_column(place, lane, rows) + half];
                if (type != TYPE_F32)
                    REGISTER(uint16_t, operands[2 * index])[2 * lane + half] =
                        type == TYPE_BF16 ? float_to_bfloat(value) : float_to_half(value);
                else if (index % 2 == half)
                    REGISTER(float, operands[2 * index])[lane] = value;
            }
}

int matrix_place(const Instruction *row, const Warp *warp, int length, uint64_t *origin,
                 uint64_t *stride) {
    const uint8_t *registers = warp->registers;
    uint64_t addresses[LANES];
    LaneMask by_space[4];
    lane_addresses(row, warp, addresses);
    int space = row->space;
    if (space == SPACE_GENERIC) {
        resolve_generic(1, addresses, by_space);
        space = by_space[SPACE_SHARED] ? SPACE_SHARED : SPACE_GLOBAL;
    }
    *origin = addresses[0];
    *stride = row->source1 < 0 ? (uint64_t)length : REGISTER(const uint32_t, row->source1)[0];
    return space;
}
