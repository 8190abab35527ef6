/* Tensor-core instructions: ldmatrix, mma.sync and wmma, with the documented fragment layouts. */
#include "matrix.h"

static void load_matrix(Block *block, Warp *warp, const Instruction *row, int pc) {
    uint8_t *registers = warp->registers;
    uint64_t addresses[LANES];
    LaneMask by_space[4];
    LaneMask lanes = row->count == 4 ? ALL_LANES : (UINT32_C(1) << (8 * row->count)) - 1;
    lane_addresses(row, warp, addresses);
    if (row->space == SPACE_GENERIC) {
        resolve_generic(lanes, addresses, by_space);
        if (by_space[SPACE_SHARED] != lanes) {
            report(block, KIND_OUT_OF_BOUNDS, pc, warp, 0, addresses[0], SPACE_SHARED, DETAIL_READ,
                   -1, -1);
            return;
        }
    }
    LaneMask allowed = shared_access(block, warp, row, pc, lanes, addresses, 16, ACCESS_LOAD);
    if (block->machine->checks)
        shared_shadow(block, warp, row, pc, allowed, addresses, 16, ACCESS_LOAD, NULL);
    const int32_t *operands = block->machine->operands + row->operands;
    bool transpose = row->flags & 1;
    for (int matrix = 0; matrix < row->count; matrix++) {
        uint16_t tile[8][8] = {{0}};
        for (int line = 0; line < 8; line++)
            if (allowed >> (8 * matrix + line) & 1)
                memcpy(tile[line], block->shared + addresses[8 * matrix + line], 16);
        uint16_t *destination = REGISTER(uint16_t, operands[2 * matrix]);
        for (int lane = 0; lane < LANES; lane++)
            for (int half = 0; half < 2; half++) {
                int line = lane / 4, column = lane % 4 * 2 + half;
                destination[2 * lane + half] = transpose ? tile[column][line] : tile[line][column];
            }
    }
}

/* mma.sync.m16n8kK: registers of A, B, C and D as drawn in the PTX manual. */
static void multiply_fragments(const Machine *machine, Warp *warp, const Instruction *row) {
    uint8_t *registers = warp->registers;
    int inner = row->count;
    bool single = row->source_type == TYPE_TF32, bfloat = row->source_type == TYPE_BF16;
    bool float_result = row->type == TYPE_F32;
    int step = single ? 4 : 8; /* columns of A that one register of each lane covers */
    int a_registers = 2 * inner / step, b_registers = inner / step;
    int d_registers = float_result ? 4 : 2;
    const int32_t *d = machine->operands + row->operands, *a = d + 2 * d_registers;
    const int32_t *b = a + 2 * a_registers, *c = b + 2 * b_registers;
    float left[16 * 16], right[16 * 8], sums[16 * 8];
    for (int lane = 0; lane < LANES; lane++) {
        int group = lane / 4, member = lane % 4;
        for (int i = 0; i < a_registers; i++) {
            int line = group + 8 * (i & 1), column = step * (i >> 1);
            if (single) { /* tf32 ignores the low 13 bits */
                left[line * inner + column + member] =
                    float_of(REGISTER(uint32_t, a[2 * i])[lane] & 0xffffe000u);
                continue;
            }
            for (int half = 0; half < 2; half++)
                left[line * inner + column + 2 * member + half] =
                    half_element(REGISTER(uint16_t, a[2 * i])[2 * lane + half], bfloat);
        }
        for (int i = 0; i < b_registers; i++) {
            if (single) {
                right[(step * i + member) * 8 + group] =
                    float_of(REGISTER(uint32_t, b[2 * i])[lane] & 0xffffe000u);
                continue;
            }
            for (int half = 0; half < 2; half++)
                right[(step * i + 2 * member + half) * 8 + group] =
                    half_element(REGISTER(uint16_t, b[2 * i])[2 * lane + half], bfloat);
        }
        for (int i = 0; i < 4; i++) {
            float *sum = &sums[(group + 8 * (i >> 1)) * 8 + 2 * member + (i & 1)];
            *sum = float_result ? REGISTER(float, c[2 * i])[lane]
                                : half_to_float(REGISTER(uint16_t, c[2 * (i >> 1)])[2 * lane + (i & 1)]);
        }
    }
    multiply_floats(left, right, sums, 16, 8, inner);
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 4; i++) {
            float sum = sums[(lane / 4 + 8 * (i >> 1)) * 8 + 2 * (lane % 4) + (i & 1)];
            if (float_result) REGISTER(float, d[2 * i])[lane] = sum;
            else REGISTER(uint16_t, d[2 * (i >> 1)])[2 * lane + (i & 1)] = float_to_half(sum);
        }
}

/* wmma.load and wmma.store. In memory a tile is eight lines (rows, or columns when column-major)
   of eight elements: one request of two elements a lane, as measured for f16 on an H200. */
static void move_matrix(Block *block, Warp *warp, const Instruction *row, int pc) {
    uint8_t *registers = warp->registers;
    const int32_t *operands = block->machine->operands + row->operands;
    int rows = row->target >> 8, columns = row->target & 255, bytes = type_bytes(row->type);
    bool row_major = row->flags & 1, storing = row->opcode == OP_WMMA_STORE;
    int lines = row_major ? rows : columns, length = row_major ? columns : rows;
    uint64_t addresses[LANES], origin, stride;
    int space = matrix_place(row, warp, length, &origin, &stride);
    float matrix[MOST_ELEMENTS];
    if (storing) unpack_fragment(registers, operands, row->type, rows, columns, matrix);
    for (int place = 0; place < rows * columns / 64; place++) {
        uint8_t values[LANES][32];
        for (int lane = 0; lane < LANES; lane++) {
            int line = fragment_row(place, lane, lines), at = fragment_column(place, lane, lines);
            addresses[lane] = origin + ((uint64_t)line * stride + (uint64_t)at) * (uint64_t)bytes;
            for (int half = 0; half < 2 && storing; half++) {
                int index = row_major ? line * columns + at + half : (at + half) * columns + line;
                if (bytes == 4) memcpy(values[lane] + 4 * half, &matrix[index], 4);
                else {
                    uint16_t bits = row->type == TYPE_BF16 ? float_to_bfloat(matrix[index])
                                                           : float_to_half(matrix[index]);
                    memcpy(values[lane] + 2 * half, &bits, 2);
                }
            }
        }
        Access access = storing ? ACCESS_STORE : ACCESS_LOAD;
        LaneMask allowed;
        if (space == SPACE_SHARED) {
            allowed = shared_access(block, warp, row, pc, ALL_LANES, addresses, 2 * bytes, access);
            if (block->machine->checks)
                shared_shadow(block, warp, row, pc, allowed, addresses, 2 * bytes, access,
                              (const uint8_t(*)[32])values);
        } else {
            allowed = global_access(block, warp, row, pc, ALL_LANES, addresses, 2 * bytes, access);
            if (block->machine->checks)
                global_shadow(block, warp, row, pc, allowed, addresses, 2 * bytes, access,
                              (const uint8_t(*)[32])values);
        }
        for (int lane = 0; lane < LANES; lane++) {
            int line = fragment_row(place, lane, lines), at = fragment_column(place, lane, lines);
            uint8_t *from = space == SPACE_SHARED ? block->shared + addresses[lane]
                                                  : (uint8_t *)addresses[lane];
            if (!(allowed >> lane & 1)) {
                if (!storing)
                    for (int half = 0; half < 2; half++)
                        matrix[row_major ? line * columns + at + half
                                         : (at + half) * columns + line] = 0;
                continue;
            }
            if (storing) {
                memcpy(from, values[lane], (size_t)(2 * bytes));
                continue;
            }
            for (int half = 0; half < 2; half++) {
                int index = row_major ? line * columns + at + half : (at + half) * columns + line;
                uint16_t bits;
                if (bytes == 4) memcpy(&matrix[index], from + 4 * half, 4);
                else {
                    memcpy(&bits, from + 2 * half, 2);
                    matrix[index] = half_element(bits, row->type == TYPE_BF16);
                }
            }
        }
    }
    if (!storing)
        pack_fragment(registers, operands, row->count, row->type, rows, columns, matrix);
}

static void multiply_matrices(const Machine *machine, Warp *warp, const Instruction *row) {
    uint8_t *registers = warp->registers;
    int rows = (int)(row->immediate >> 16 & 255), columns = (int)(row->immediate >> 8 & 255);
    int inner = (int)(row->immediate & 255), c_type = row->target;
    const int32_t *d = machine->operands + row->operands, *a = d + 2 * row->count;
    const int32_t *b = a + 2 * row->source1, *c = b + 2 * row->source2;
    float left[MOST_ELEMENTS], right[MOST_ELEMENTS], sums[MOST_ELEMENTS];
    unpack_fragment(registers, a, row->source_type, rows, inner, left);
    unpack_fragment(registers, b, row->source_type, inner, columns, right);
    unpack_fragment(registers, c, c_type, rows, columns, sums);
    multiply_floats(left, right, sums, rows, columns, inner);
    pack_fragment(registers, d, row->count, row->type, rows, columns, sums);
}

void execute_matrix(Block *block, Warp *warp, const Instruction *row, int pc, LaneMask lanes) {
    if (lanes != ALL_LANES)
        report(block, KIND_SHUFFLE_INACTIVE, pc, warp, __builtin_ctz(~lanes), 0, -1,
               DETAIL_PARTIAL_WARP, -1, -1);
    switch (row->opcode) {
    case OP_LOAD_MATRIX: load_matrix(block, warp, row, pc); break;
    case OP_STORE_MATRIX: store_matrix(block, warp, row, pc); break;
    case OP_MOVE_MATRIX: transpose_tile(warp, row); break;
    case OP_MMA: multiply_fragments(block->machine, warp, row); break;
    case OP_MMA_INTEGER: multiply_integers(block->machine, warp, row); break;
    case OP_MMA_DOUBLE: multiply_doubles(block->machine, warp, row); break;
    case OP_WMMA_MMA:
        if (has_mma_layout(row->source_type)) multiply_mma_layout(block->machine, warp, row);
        else multiply_matrices(block->machine, warp, row);
        break;
    default:
        if (has_mma_layout(row->type)) move_mma_layout(block, warp, row, pc);
        else move_matrix(block, warp, row, pc);
    }
}
