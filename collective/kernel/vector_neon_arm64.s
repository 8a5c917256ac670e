//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"

// The loops of amd64 in the registers of arm64: a loop reduces one step of all inputs in registers and stores it to
// all destinations, so every byte is loaded and stored once.
//
//	R0     args          R7  offset in bytes    R8  its end
//	R1/R2  dsts, count   R4/R5 srcs, count      R6  partial, 0 if there is none
//	R9     flags         R10 slice to visit     R11 slices to go     R3  its memory
//
// Accumulators are V0 to V7, the input is V16 to V23. V8 and V9 hold the scale factors, V24 to V27 16-bit floats as
// they lie in memory, V28 is a temporary, V29 a constant, V30 the canonical NaN.

#define ARGUMENTS \
	MOVD args_dsts(R0), R1;      \
	MOVD args_dsts+8(R0), R2;    \
	MOVD args_srcs(R0), R4;      \
	MOVD args_srcs+8(R0), R5;    \
	MOVD args_partial(R0), R6;   \
	MOVD args_from(R0), R7;      \
	MOVD args_to(R0), R8;        \
	MOVD args_flags(R0), R9

#define NEXT_SLICE \
	MOVD.P 24(R10), R3; \
	ADD    R7, R3

// The parameters are names of macros: LOAD reads the accumulators of one step from R3, GET the input; MUL multiplies,
// and is for the scale factors; OP combines an input register with an accumulator; FINISH makes the accumulators what
// is to be stored, and STORE writes them to R3.
#define LOOP(LOAD, GET, MUL, OP, FINISH, STORE, STEP) \
step:                                 \
	MOVD R4, R10;                 \
	MOVD R5, R11;                 \
	CBZ  R6, first;               \
	ADD  R7, R6, R3;              \
	LOAD;                         \
	B    more;                    \
first:                                \
	NEXT_SLICE;                   \
	SUB  $1, R11;                 \
	LOAD;                         \
	TST  $const_flagPre, R9;      \
	BEQ  more;                    \
	SCALE(MUL, 8, 0);             \
more:                                 \
	CBZ  R11, finish;             \
fold:                                 \
	NEXT_SLICE;                   \
	GET;                          \
	TST  $const_flagPre, R9;      \
	BEQ  unscaled;                \
	SCALE(MUL, 8, 16);            \
unscaled:                             \
	FOLD(OP);                     \
	SUB  $1, R11;                 \
	CBNZ R11, fold;               \
finish:                               \
	TST  $const_flagPost, R9;     \
	BEQ  stores;                  \
	SCALE(MUL, 9, 0);             \
stores:                               \
	FINISH;                       \
	MOVD R1, R10;                 \
	MOVD R2, R11;                 \
store:                                \
	NEXT_SLICE;                   \
	STORE;                        \
	SUB  $1, R11;                 \
	CBNZ R11, store;              \
	ADD  $STEP, R7;               \
	CMP  R8, R7;                  \
	BLO  step;                    \
	RET

#define FOLD(OP) \
	OP(16, 0); OP(17, 1); OP(18, 2); OP(19, 3); OP(20, 4); OP(21, 5); OP(22, 6); OP(23, 7)

#define SCALE(MUL, BY, TO) \
	MUL(BY, TO+0); MUL(BY, TO+1); MUL(BY, TO+2); MUL(BY, TO+3); \
	MUL(BY, TO+4); MUL(BY, TO+5); MUL(BY, TO+6); MUL(BY, TO+7)

#define EACH(OP) \
	OP(0); OP(1); OP(2); OP(3); OP(4); OP(5); OP(6); OP(7)

#define LOAD \
	FLDPQ 0(R3), (F0, F1);   FLDPQ 32(R3), (F2, F3); \
	FLDPQ 64(R3), (F4, F5);  FLDPQ 96(R3), (F6, F7)
#define GET \
	FLDPQ 0(R3), (F16, F17); FLDPQ 32(R3), (F18, F19); \
	FLDPQ 64(R3), (F20, F21); FLDPQ 96(R3), (F22, F23)
#define STORE \
	FSTPQ (F0, F1), 0(R3);   FSTPQ (F2, F3), 32(R3); \
	FSTPQ (F4, F5), 64(R3);  FSTPQ (F6, F7), 96(R3)

#define WIDENED(LOWER, UPPER, TO) \
	FLDPQ 0(R3), (F24, F25);  FLDPQ 32(R3), (F26, F27); \
	LOWER(24, TO+0); UPPER(24, TO+1); LOWER(25, TO+2); UPPER(25, TO+3); \
	LOWER(26, TO+4); UPPER(26, TO+5); LOWER(27, TO+6); UPPER(27, TO+7)
#define STORE_HALVES \
	FSTPQ (F0, F2), 0(R3);   FSTPQ (F4, F6), 32(R3)

#define FINISH_F16 EACH(CANON_S); PACK_F16(0, 1); PACK_F16(2, 3); PACK_F16(4, 5); PACK_F16(6, 7)

#define FINISH_BF16 EACH(CANON_S); EACH(ROUND_BF16); PACK_BF16(0, 1); PACK_BF16(2, 3); PACK_BF16(4, 5); PACK_BF16(6, 7)

#define SINGLE_CONSTANTS \
	MOVWU args_pre32(R0), R3;     \
	VDUP  R3, V8.S4;              \
	MOVWU args_post32(R0), R3;    \
	VDUP  R3, V9.S4;              \
	HALF_CONSTANTS

#define DOUBLE_CONSTANTS \
	MOVD args_pre(R0), R3;        \
	VDUP R3, V8.D2;               \
	MOVD args_post(R0), R3;       \
	VDUP R3, V9.D2;               \
	MOVD $0x7ff8000000000000, R3; \
	VDUP R3, V30.D2

#define SINGLES(OP) ARGUMENTS; SINGLE_CONSTANTS; LOOP(LOAD, GET, FMUL_S, OP, EACH(CANON_S), STORE, 128)
#define DOUBLES(OP) ARGUMENTS; DOUBLE_CONSTANTS; LOOP(LOAD, GET, FMUL_D, OP, EACH(CANON_D), STORE, 128)
#define FLOAT16(OP) ARGUMENTS; SINGLE_CONSTANTS; \
	LOOP(WIDENED(FCVTL, FCVTL2, 0), WIDENED(FCVTL, FCVTL2, 16), FMUL_S, OP, FINISH_F16, STORE_HALVES, 64)
#define BFLOAT16(OP) ARGUMENTS; SINGLE_CONSTANTS; \
	LOOP(WIDENED(SHLL, SHLL2, 0), WIDENED(SHLL, SHLL2, 16), FMUL_S, OP, FINISH_BF16, STORE_HALVES, 64)

// Integers are not scaled here.
#define UNSCALED(BY, A)
#define AS_IS
#define INTEGERS(OP) ARGUMENTS; LOOP(LOAD, GET, UNSCALED, OP, AS_IS, STORE, 128)

// The CPU has no minimum of 64 bits: it compares, and copies where the input is less, or greater.
#define SMIN_D(X, A) CMGT_D(A, X, 28); BIT(X, 28, A)
#define SMAX_D(X, A) CMGT_D(X, A, 28); BIT(X, 28, A)
#define UMIN_D(X, A) CMHI_D(A, X, 28); BIT(X, 28, A)
#define UMAX_D(X, A) CMHI_D(X, A, 28); BIT(X, 28, A)

// func runNEON(a *args, loop int) bool
TEXT ·runNEON(SB), NOSPLIT, $0-17
	MOVD a+0(FP), R0
	MOVD loop+8(FP), R1
	MOVD $loops<>(SB), R2
	MOVD (R2)(R1<<3), R2
	CMP  $0, R2
	CSET NE, R1
	MOVB R1, ret+16(FP)
	BEQ  none
	JMP  (R2) // which returns to the caller
none:
	RET

#include "loops.h"
