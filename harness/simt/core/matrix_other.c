/* Tensor-core instructions on integers, doubles and tf32, and the moves of 8 x 8 tiles. */
#include "matrix.h"

#define REGISTER(T, operand) ((T *)(registers + (operand)))

/* ---- mma.sync: the documented fragment layouts ----------------------------------------------- */

typedef struct {
    int rows, columns, inner;
    const int32_t *d, *a, *b, *c;
    int d_count, a_count, b_count;
} Product;

static Product product_of(const Machine *machine, const Instruction *row) {
    Product p = {(int)(row->immediate >> 16 & 255), (int)(row->immediate >> 8 & 255),
                 (int)(row->immediate & 255)};
    p.d_count = row->count, p.a_count = row->source1, p.b_count = row->source2;
    p.d = machine->operands + row->operands, p.a = p.d + 2 * p.d_count;
    p.b = p.a + 2 * p.a_count, p.c = p.b + 2 * p.b_count;
    return p;
}

static int32_t byte_element(uint32_t word, int place, bool is_signed) {
    uint8_t byte = (uint8_t)(word >> 8 * place);
    return is_signed ? (int8_t)byte : byte;
}

/* A: rows of 16 bytes in one register of four lanes, then eight rows on, then 16 columns on. */
void multiply_integers(const Machine *machine, Warp *warp, const Instruction *row) {
    uint8_t *registers = warp->registers;
    Product p = product_of(machine, row);
    int32_t left[16 * 32], right[32 * 8];
    int64_t sums[16 * 8];
    int row_groups = p.rows / 8;
    for (int lane = 0; lane < LANES; lane++) {
        int group = lane / 4, member = lane % 4;
        for (int i = 0; i < p.a_count; i++)
            for (int place = 0; place < 4; place++) {
                int line = group + 8 * (i % row_groups);
                int column = 16 * (i / row_groups) + 4 * member + place;
                left[line * p.inner + column] =
                    byte_element(REGISTER(uint32_t, p.a[2 * i])[lane], place, row->flags & 1);
            }
        for (int i = 0; i < p.b_count; i++)
            for (int place = 0; place < 4; place++)
                right[(16 * i + 4 * member + place) * 8 + group] =
                    byte_element(REGISTER(uint32_t, p.b[2 * i])[lane], place, row->flags & 2);
        for (int i = 0; i < p.d_count; i++)
            sums[(group + 8 * (i >> 1)) * 8 + 2 * member + (i & 1)] =
                REGISTER(int32_t, p.c[2 * i])[lane];
    }
    for (int line = 0; line < p.rows; line++)
        for (int column = 0; column < 8; column++) {
            int64_t sum = sums[line * 8 + column];
            for (int k = 0; k < p.inner; k++)
                sum += (int64_t)left[line * p.inner + k] * right[k * 8 + column];
            if (row->flags & 4) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
            sums[line * 8 + column] = sum;
        }
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < p.d_count; i++)
            REGISTER(int32_t, p.d[2 * i])[lane] =
                (int32_t)sums[(lane / 4 + 8 * (i >> 1)) * 8 + 2 * (lane % 4) + (i & 1)];
}

/* m8n8k4, and m16n8kK: registers go down the rows first, four columns at a time. */
void multiply_doubles(const Machine *machine, Warp *warp, const Instruction *row) {
    uint8_t *registers = warp->registers;
    Product p = product_of(machine, row);
    double left[16 * 16], right[16 * 8], sums[16 * 8];
    int row_groups = p.rows / 8;
    for (int lane = 0; lane < LANES; lane++) {
        int group = lane / 4, member = lane % 4;
        for (int i = 0; i < p.a_count; i++)
            left[(group + 8 * (i % row_groups)) * p.inner + 4 * (i / row_groups) + member] =
                REGISTER(double, p.a[2 * i])[lane];
        for (int i = 0; i < p.b_count; i++)
            right[(4 * i + member) * 8 + group] = REGISTER(double, p.b[2 * i])[lane];
        for (int i = 0; i < p.d_count; i++)
            sums[(group + 8 * (i >> 1)) * 8 + 2 * member + (i & 1)] =
                REGISTER(double, p.c[2 * i])[lane];
    }
    for (int line = 0; line < p.rows; line++)
        for (int column = 0; column < 8; column++)
            for (int k = 0; k < p.inner; k++)
                sums[line * 8 + column] = __builtin_fma(left[line * p.inner + k],
                                                        right[k * 8 + column],
                                                        sums[line * 8 + column]);
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < p.d_count; i++)
            REGISTER(double, p.d[2 * i])[lane] =
                sums[(lane / 4 + 8 * (i >> 1)) * 8 + 2 * (lane % 4) + (i & 1)];
}

/* ---- tiles ------------------------------------------------------------------------------------ */

void store_matrix(Block *block, Warp *warp, const Instruction *row, int pc) {
    uint8_t *registers = warp->registers;
    uint64_t addresses[LANES];
    LaneMask by_space[4];
    LaneMask lanes = row->count == 4 ? ALL_LANES : (UINT32_C(1) << (8 * row->count)) - 1;
    const int32_t *operands = block->machine->operands + row->operands;
    uint8_t values[LANES][32];
    for (int matrix = 0; matrix < row->count; matrix++)
        for (int lane = 0; lane < LANES; lane++)
            for (int half = 0; half < 2; half++) {
                uint16_t element = REGISTER(uint16_t, operands[2 * matrix])[2 * lane + half];
                int line = lane / 4, column = lane % 4 * 2 + half;
                if (row->flags & 1) line = lane % 4 * 2 + half, column = lane / 4;
                memcpy(values[8 * matrix + line] + 2 * column, &element, 2);
            }
    lane_addresses(row, warp, addresses);
    if (row->space == SPACE_GENERIC) resolve_generic(lanes, addresses, by_space);
    LaneMask allowed = shared_access(block, warp, row, pc, lanes, addresses, 16, ACCESS_STORE);
    if (block->machine->checks)
        shared_shadow(block, warp, row, pc, allowed, addresses, 16, ACCESS_STORE,
                      (const uint8_t(*)[32])values);
    block->changes++;
    FOR_EACH_LANE(lane, allowed) memcpy(block->shared + addresses[lane], values[lane], 16);
}

void transpose_tile(Warp *warp, const Instruction *row) {
    uint8_t *registers = warp->registers;
    uint16_t tile[64];
    memcpy(tile, registers + row->source0, sizeof tile); /* lane by lane: the rows one by one */
    for (int line = 0; line < 8; line++)
        for (int column = 0; column < 8; column++)
            REGISTER(uint16_t, row->destination)[8 * line + column] = tile[8 * column + line];
}

/* ---- wmma of types whose fragments are opaque and not measured: element n is lane n % 32's ------ */

bool is_linear(int type) {
    return type == TYPE_S8 || type == TYPE_U8 || type == TYPE_S32 || type == TYPE_F64 ||
           type == TYPE_TF32;
}

static double read_element(const uint8_t *at, int type) {
    uint32_t word;
    uint64_t wide;
    switch (type) {
    case TYPE_S8: return *(const int8_t *)at;
    case TYPE_U8: return *at;
    case TYPE_F64: memcpy(&wide, at, 8); return double_of(wide);
    case TYPE_S32: memcpy(&word, at, 4); return (int32_t)word;
    default: memcpy(&word, at, 4); return float_of(word);
    }
}

static void write_element(uint8_t *at, int type, double value) {
    switch (type) {
    case TYPE_S8: *(int8_t *)at = (int8_t)value; break;
    case TYPE_U8: *at = (uint8_t)value; break;
    case TYPE_F64: memcpy(at, &value, 8); break;
    case TYPE_S32: *(int32_t *)at = (int32_t)(int64_t)value; break; /* sums wrap */
    default: *(float *)at = (float)value;
    }
}

/* Registers hold whole words: four bytes of an 8-bit type, or one element. */
static uint8_t *slot(uint8_t *registers, const int32_t *operands, int type, int index) {
    int lane = index % LANES, element = index / LANES, bytes = type_bytes(type);
    int each = bytes < 4 ? 4 / bytes : 1, width = bytes < 4 ? 4 : bytes;
    return registers + operands[2 * (element / each)] + lane * width + element % each * bytes;
}

void move_linear(Block *block, Warp *warp, const Instruction *row, int pc) {
    uint8_t *registers = warp->registers;
    const int32_t *operands = block->machine->operands + row->operands;
    int rows = row->target >> 8, columns = row->target & 255, bytes = type_bytes(row->type);
    bool row_major = row->flags & 1, storing = row->opcode == OP_WMMA_STORE;
    int length = row_major ? columns : rows;
    Access access = storing ? ACCESS_STORE : ACCESS_LOAD;
    uint64_t addresses[LANES], origin, stride;
    int space = matrix_place(row, warp, length, &origin, &stride);
    for (int first = 0; first < rows * columns; first += LANES) {
        uint8_t values[LANES][32];
        uint8_t *slots[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            int line = (first + lane) / length, at = (first + lane) % length;
            addresses[lane] = origin + ((uint64_t)line * stride + (uint64_t)at) * (uint64_t)bytes;
            slots[lane] = slot(registers, operands, row->type,
                               row_major ? line * columns + at : at * columns + line);
            memcpy(values[lane], slots[lane], (size_t)bytes);
        }
        LaneMask allowed;
        if (space == SPACE_SHARED) {
            allowed = shared_access(block, warp, row, pc, ALL_LANES, addresses, bytes, access);
            if (block->machine->checks)
                shared_shadow(block, warp, row, pc, allowed, addresses, bytes, access,
                              (const uint8_t(*)[32])values);
        } else {
            allowed = global_access(block, warp, row, pc, ALL_LANES, addresses, bytes, access);
            if (block->machine->checks)
                global_shadow(block, warp, row, pc, allowed, addresses, bytes, access,
                              (const uint8_t(*)[32])values);
        }
        for (int lane = 0; lane < LANES; lane++) {
            uint8_t *memory = space == SPACE_SHARED ? block->shared + addresses[lane]
                                                    : (uint8_t *)addresses[lane];
            if (!(allowed >> lane & 1)) {
                if (!storing) memset(slots[lane], 0, (size_t)bytes);
            } else if (storing) {
                memcpy(memory, values[lane], (size_t)bytes);
            } else {
                memcpy(slots[lane], memory, (size_t)bytes);
            }
        }
    }
    if (storing) block->changes++;
}

void multiply_linear(const Machine *machine, Warp *warp, const Instruction *row) {
    uint8_t *registers = warp->registers;
    Product p = product_of(machine, row);
    double left[MOST_ELEMENTS], right[MOST_ELEMENTS], sums[MOST_ELEMENTS];
    for (int i = 0; i < p.rows * p.inner; i++)
        left[i] = read_element(slot(registers, p.a, row->source_type, i), row->source_type);
    for (int i = 0; i < p.inner * p.columns; i++)
        right[i] = read_element(slot(registers, p.b, row->source_type, i), row->source_type);
    if (row->source_type == TYPE_TF32) { /* sums are floats, laid out as those of halves */
        float a[MOST_ELEMENTS], b[MOST_ELEMENTS], d[MOST_ELEMENTS];
        for (int i = 0; i < p.rows * p.inner; i++)
            a[i] = float_of(bits_of((float)left[i]) & 0xffffe000u);
        for (int i = 0; i < p.inner * p.columns; i++)
            b[i] = float_of(bits_of((float)right[i]) & 0xffffe000u);
        unpack_fragment(registers, p.c, TYPE_F32, p.rows, p.columns, d);
        multiply_floats(a, b, d, p.rows, p.columns, p.inner);
        pack_fragment(registers, p.d, p.d_count, TYPE_F32, p.rows, p.columns, d);
        return;
    }
    for (int i = 0; i < p.rows * p.columns; i++)
        sums[i] = read_element(slot(registers, p.c, row->type, i), row->type);
    for (int line = 0; line < p.rows; line++)
        for (int column = 0; column < p.columns; column++)
            for (int k = 0; k < p.inner; k++)
                sums[line * p.columns + column] =
                    __builtin_fma(left[line * p.inner + k], right[k * p.columns + column],
                                  sums[line * p.columns + column]);
    for (int i = 0; i < p.rows * p.columns; i++)
        write_element(slot(registers, p.d, row->type, i), row->type, sums[i]);
}
