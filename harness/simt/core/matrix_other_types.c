/* Tensor-core instructions on integers, doubles and tf32, and the moves of 8 x 8 tiles. */
#include "matrix.h"

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

/* ---- wmma of 8-bit integers, tf32 and f64: fragments as in mma.sync (nvcc's machine code) -------- */

bool has_mma_layout(int type) {
    return type == TYPE_S8 || type == TYPE_U8 || type == TYPE_S32 || type == TYPE_F64 ||
           type == TYPE_TF32;
}

typedef struct {
    int type, rows, columns;
    char which; /* a, b, or c for the sums */
} Fragment;

typedef struct {
    int row, column;
} Place;

/* Registers hold whole words: four bytes of an 8-bit type, or one element. */
static int elements_of_word(int type) { return type_bytes(type) == 1 ? 4 : 1; }

/* Where element `index` of a lane's registers lies in the matrix. Lanes are eight lines of four:
   rows of A, columns of B, rows of the sums, but their columns where these are 8 x 32, which is
   computed as the transpose of 32 x 8. */
static Place place_of(Fragment f, int lane, int index) {
    int each = elements_of_word(f.type), word = index / each;
    int across = 4 * each, within = each * (lane % 4) + index % each;
    if (f.which == 'a') {
        int blocks = f.rows / 8;
        return (Place){8 * (word % blocks) + lane / 4, across * (word / blocks) + within};
    }
    if (f.which == 'b') {
        int blocks = f.columns / 8;
        return (Place){across * (word / blocks) + within, 8 * (word % blocks) + lane / 4};
    }
    int pair = index / 2, second = 2 * (lane % 4) + index % 2;
    if (f.rows == 8 && f.columns == 32) return (Place){second, 8 * pair + lane / 4};
    int blocks = f.rows / 8;
    return (Place){8 * (pair % blocks) + lane / 4, 8 * (pair / blocks) + second};
}

/* How many of a lane's elements one access moves: neighbours in memory, of one line. */
static int elements_of_access(Fragment f, bool row_major) {
    if (f.which == 'a') return row_major ? elements_of_word(f.type) : 1;
    if (f.which == 'b') return row_major ? 1 : elements_of_word(f.type);
    return row_major == !(f.rows == 8 && f.columns == 32) ? 2 : 1;
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

static uint8_t *slot(uint8_t *registers, const int32_t *operands, int type, int lane, int index) {
    int bytes = type_bytes(type), each = elements_of_word(type);
    return registers + operands[2 * (index / each)] + lane * each * bytes + index % each * bytes;
}

static void collect(uint8_t *registers, const int32_t *operands, Fragment f, double *matrix) {
    for (int lane = 0; lane < LANES; lane++)
        for (int index = 0; index < f.rows * f.columns / LANES; index++) {
            Place at = place_of(f, lane, index);
            matrix[at.row * f.columns + at.column] =
                read_element(slot(registers, operands, f.type, lane, index), f.type);
        }
}

/* Moves a fragment between registers and memory, one access of all lanes after the other. */
void move_mma_layout(Block *block, Warp *warp, const Instruction *row, int pc) {
    uint8_t *registers = warp->registers;
    const int32_t *operands = block->machine->operands + row->operands;
    Fragment f = {row->type, row->target >> 8, row->target & 255, "abc"[row->flags >> 1]};
    bool row_major = row->flags & 1, storing = row->opcode == OP_WMMA_STORE;
    int bytes = type_bytes(row->type), together = elements_of_access(f, row_major);
    int width = together * bytes;
    Access access = storing ? ACCESS_STORE : ACCESS_LOAD;
    uint64_t addresses[LANES], origin, stride;
    int space = matrix_place(row, warp, row_major ? f.columns : f.rows, &origin, &stride);
    for (int first = 0; first < f.rows * f.columns / LANES; first += together) {
        uint8_t values[LANES][32];
        for (int lane = 0; lane < LANES; lane++) {
            Place place = place_of(f, lane, first);
            int line = row_major ? place.row : place.column;
            int at = row_major ? place.column : place.row;
            addresses[lane] = origin + ((uint64_t)line * stride + (uint64_t)at) * (uint64_t)bytes;
            for (int i = 0; i < together; i++)
                memcpy(values[lane] + i * bytes,
                       slot(registers, operands, f.type, lane, first + i), (size_t)bytes);
        }
        LaneMask allowed;
        if (space == SPACE_SHARED) {
            allowed = shared_access(block, warp, row, pc, ALL_LANES, addresses, width, access);
            if (block->machine->checks)
                shared_shadow(block, warp, row, pc, allowed, addresses, width, access,
                              (const uint8_t(*)[32])values);
        } else {
            allowed = global_access(block, warp, row, pc, ALL_LANES, addresses, width, access);
            if (block->machine->checks)
                global_shadow(block, warp, row, pc, allowed, addresses, width, access,
                              (const uint8_t(*)[32])values);
        }
        for (int lane = 0; lane < LANES; lane++) {
            uint8_t *memory = space == SPACE_SHARED ? block->shared + addresses[lane]
                                                    : (uint8_t *)addresses[lane];
            bool reached = allowed >> lane & 1;
            if (storing) {
                if (reached) memcpy(memory, values[lane], (size_t)width);
                continue;
            }
            for (int i = 0; i < together; i++) {
                uint8_t *to = slot(registers, operands, f.type, lane, first + i);
                if (reached) memcpy(to, memory + i * bytes, (size_t)bytes);
                else memset(to, 0, (size_t)bytes);
            }
        }
    }
    if (storing) block->changes++;
}

void multiply_mma_layout(const Machine *machine, Warp *warp, const Instruction *row) {
    uint8_t *registers = warp->registers;
    Product p = product_of(machine, row);
    double left[MOST_ELEMENTS], right[MOST_ELEMENTS], sums[MOST_ELEMENTS];
    collect(registers, p.a, (Fragment){row->source_type, p.rows, p.inner, 'a'}, left);
    collect(registers, p.b, (Fragment){row->source_type, p.inner, p.columns, 'b'}, right);
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
    Fragment result = {row->type, p.rows, p.columns, 'c'};
    collect(registers, p.c, result, sums);
    for (int line = 0; line < p.rows; line++)
        for (int column = 0; column < p.columns; column++)
            for (int k = 0; k < p.inner; k++)
                sums[line * p.columns + column] =
                    __builtin_fma(left[line * p.inner + k], right[k * p.columns + column],
                                  sums[line * p.columns + column]);
    for (int lane = 0; lane < LANES; lane++)
        for (int index = 0; index < p.rows * p.columns / LANES; index++) {
            Place at = place_of(result, lane, index);
            write_element(slot(registers, p.d, row->type, lane, index), row->type,
                          sums[at.row * p.columns + at.column]);
        }
}
