/* What the files of tensor-core instructions share; each calls only those below it here. */
#ifndef SIMT_MATRIX_H
#define SIMT_MATRIX_H

#include "numeric.h"
#include "simt.h"

#define MOST_ELEMENTS 512 /* 32 x 16, the largest operand */
#define REGISTER(T, operand) ((T *)(registers + (operand)))

static inline float half_element(uint16_t bits, bool bfloat) {
    return bfloat ? bfloat_to_float(bits) : half_to_float(bits);
}

/* wmma fragments are opaque to the program. Ours follow the mma layout: 8 x 8 tiles, down the
   rows first, each lane holding two neighbours of one row. `place` counts tiles. */
static inline int fragment_row(int place, int lane, int rows) {
    return 8 * (place % (rows / 8)) + lane / 4;
}
static inline int fragment_column(int place, int lane, int rows) {
    return 8 * (place / (rows / 8)) + lane % 4 * 2;
}

/* matrix_other_types.c */
bool has_mma_layout(int type);
void store_matrix(Block *, Warp *, const Instruction *, int pc);
void transpose_tile(Warp *, const Instruction *);
void multiply_integers(const Machine *, Warp *, const Instruction *);
void multiply_doubles(const Machine *, Warp *, const Instruction *);
void multiply_mma_layout(const Machine *, Warp *, const Instruction *);
void move_mma_layout(Block *, Warp *, const Instruction *, int pc);
/* matrix_fragments.c */
void multiply_floats(const float *a, const float *b, float *d, int rows, int columns, int inner);
void unpack_fragment(const uint8_t *registers, const int32_t *operands, int type, int rows,
                     int columns, float *matrix);
void pack_fragment(uint8_t *registers, const int32_t *operands, int count, int type, int rows,
                   int columns, const float *matrix);
/* Where a wmma.load or wmma.store finds its matrix: first element, elements from one line to the
   next (`length` where lines follow each other), and, returned, the space. */
int matrix_place(const Instruction *, const Warp *, int length, uint64_t *origin, uint64_t *stride);

#endif
