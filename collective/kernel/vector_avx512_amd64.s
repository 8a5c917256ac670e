//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "vector_amd64.h"

// Accumulators are Z0 to Z3, Z8 is the input; Z13 and Z14 hold the scale factors, Z15 the canonical NaN,
// Z9 and Z10 constants, Z11 and Z12 temporaries. A step is as long as with AVX2.

#define LOAD(GET) \
	GET(0, Z0); GET(1, Z1); GET(2, Z2); GET(3, Z3)

#define FOLD(GET, OP) \
	GET(0, Z8); OP(Z8, Z0); GET(1, Z8); OP(Z8, Z1); \
	GET(2, Z8); OP(Z8, Z2); GET(3, Z8); OP(Z8, Z3)

#define FOLDSCALED(GET, MUL, OP) \
	GET(0, Z8); MUL Z13, Z8, Z8; OP(Z8, Z0); GET(1, Z8); MUL Z13, Z8, Z8; OP(Z8, Z1); \
	GET(2, Z8); MUL Z13, Z8, Z8; OP(Z8, Z2); GET(3, Z8); MUL Z13, Z8, Z8; OP(Z8, Z3)

#define SCALE(MUL, BY) \
	MUL BY, Z0, Z0; MUL BY, Z1, Z1; MUL BY, Z2, Z2; MUL BY, Z3, Z3

#define EACH(OP) \
	OP(Z0); OP(Z1); OP(Z2); OP(Z3)

#define PUT(MOVE, I, R) MOVE R, I*64(AX)(CX*1)
#define STORE4(MOVE) \
	PUT(MOVE, 0, Z0); PUT(MOVE, 1, Z1); PUT(MOVE, 2, Z2); PUT(MOVE, 3, Z3)
#define STORE2(MOVE) \
	PUT(MOVE, 0, Z0); PUT(MOVE, 1, Z2)

#define GET(I, R) VMOVDQU64 I*64(AX)(CX*1), R
#define GET_F16(I, R) VCVTPH2PS I*32(AX)(CX*1), R
#define GET_BF16(I, R) VPMOVZXWD I*32(AX)(CX*1), R; VPSLLD $16, R, R

#define FADD_S(X, A) VADDPS X, A, A
#define FADD_D(X, A) VADDPD X, A, A
#define FMUL_S(X, A) VMULPS X, A, A
#define FMUL_D(X, A) VMULPD X, A, A
// The CPU's minimum is its second operand if one is NaN or both are zero. Of both orders "or" keeps the
// sign of -0; the mask puts in a NaN where there was one.
#define FMIN_S(X, A) VCMPPS $3, X, A, K1; VMINPS X, A, Z12; VMINPS A, X, Z11; VORPS Z11, Z12, A; VMOVAPS Z15, K1, A
#define FMAX_S(X, A) VCMPPS $3, X, A, K1; VMAXPS X, A, Z12; VMAXPS A, X, Z11; VANDPS Z11, Z12, A; VMOVAPS Z15, K1, A
#define FMIN_D(X, A) VCMPPD $3, X, A, K1; VMINPD X, A, Z12; VMINPD A, X, Z11; VORPD Z11, Z12, A; VMOVAPD Z15, K1, A
#define FMAX_D(X, A) VCMPPD $3, X, A, K1; VMAXPD X, A, Z12; VMAXPD A, X, Z11; VANDPD Z11, Z12, A; VMOVAPD Z15, K1, A

#define CANON_S(A) VCMPPS $3, A, A, K1; VMOVAPS Z15, K1, A
#define CANON_D(A) VCMPPD $3, A, A, K1; VMOVAPD Z15, K1, A

#define PACK_F16(A, YA, B, YB) VCVTPS2PH $0, A, YA; VCVTPS2PH $0, B, YB; VINSERTI64X4 $1, YB, A, A
#define FINISH_F16 EACH(CANON_S); PACK_F16(Z0, Y0, Z1, Y1); PACK_F16(Z2, Y2, Z3, Y3)

// To nearest even: add half of what is cut off, less one if the last bit kept is 0.
#define ROUND_BF16(A) VPSRLD $16, A, Z8; VPANDD Z9, Z8, Z8; VPADDD Z10, A, A; VPADDD Z8, A, A; VPSRLD $16, A, A
#define PACK_BF16(A, YA, B, YB) VPMOVDW A, YA; VPMOVDW B, YB; VINSERTI64X4 $1, YB, A, A
#define FINISH_BF16 EACH(CANON_S); EACH(ROUND_BF16); PACK_BF16(Z0, Y0, Z1, Y1); PACK_BF16(Z2, Y2, Z3, Y3)

#define SINGLE_CONSTANTS \
	VBROADCASTSS args_pre32(DI), Z13;  \
	VBROADCASTSS args_post32(DI), Z14; \
	MOVL $const_quietNaN, AX;          \
	VPBROADCASTD AX, Z15

#define DOUBLE_CONSTANTS \
	VBROADCASTSD args_pre(DI), Z13;    \
	VBROADCASTSD args_post(DI), Z14;   \
	MOVQ $0x7ff8000000000000, AX;      \
	VPBROADCASTQ AX, Z15

#define BFLOAT16_CONSTANTS \
	VPTERNLOGD $0xff, Z9, Z9, Z9; \
	VPSRLD $17, Z9, Z10;          \
	VPSRLD $31, Z9, Z9

#define SINGLES(OP) \
	ARGUMENTS; SINGLE_CONSTANTS; \
	FLOAT_LOOP(LOAD(GET), SCALE(VMULPS, Z13), FOLD(GET, OP), FOLDSCALED(GET, VMULPS, OP), SCALE(VMULPS, Z14), EACH(CANON_S), STORE4(VMOVDQU64), STORE4(VMOVNTDQ), 256)

#define DOUBLES(OP) \
	ARGUMENTS; DOUBLE_CONSTANTS; \
	FLOAT_LOOP(LOAD(GET), SCALE(VMULPD, Z13), FOLD(GET, OP), FOLDSCALED(GET, VMULPD, OP), SCALE(VMULPD, Z14), EACH(CANON_D), STORE4(VMOVDQU64), STORE4(VMOVNTDQ), 256)

#define HALVES(GET, OP, FINISH) \
	FLOAT_LOOP(LOAD(GET), SCALE(VMULPS, Z13), FOLD(GET, OP), FOLDSCALED(GET, VMULPS, OP), SCALE(VMULPS, Z14), FINISH, STORE2(VMOVDQU64), STORE2(VMOVNTDQ), 128)

#define FLOAT16(OP) ARGUMENTS; SINGLE_CONSTANTS; HALVES(GET_F16, OP, FINISH_F16)
#define BFLOAT16(OP) ARGUMENTS; SINGLE_CONSTANTS; BFLOAT16_CONSTANTS; HALVES(GET_BF16, OP, FINISH_BF16)

#define INTEGERS(OP) \
	ARGUMENTS; \
	INTEGER_LOOP(LOAD(GET), FOLD(GET, OP), STORE4(VMOVDQU64), STORE4(VMOVNTDQ), 256)

#define ADD_B(X, A) VPADDB X, A, A
#define ADD_H(X, A) VPADDW X, A, A
#define ADD_S(X, A) VPADDD X, A, A
#define ADD_D(X, A) VPADDQ X, A, A
// The CPU multiplies no bytes: it multiplies words, once of the lower bytes and once of the upper ones.
#define MUL_B(X, A) \
	VPSRLW $8, A, Z11; VPSRLW $8, X, Z12; VPMULLW Z12, Z11, Z11; VPSLLW $8, Z11, Z11; \
	VPMULLW X, A, A; VPSLLW $8, A, A; VPSRLW $8, A, A; VPORQ Z11, A, A
#define MUL_H(X, A) VPMULLW X, A, A
#define MUL_S(X, A) VPMULLD X, A, A
#define MUL_D(X, A) VPMULLQ X, A, A
#define UMIN_B(X, A) VPMINUB X, A, A
#define UMIN_H(X, A) VPMINUW X, A, A
#define UMIN_S(X, A) VPMINUD X, A, A
#define UMIN_D(X, A) VPMINUQ X, A, A
#define SMIN_B(X, A) VPMINSB X, A, A
#define SMIN_H(X, A) VPMINSW X, A, A
#define SMIN_S(X, A) VPMINSD X, A, A
#define SMIN_D(X, A) VPMINSQ X, A, A
#define UMAX_B(X, A) VPMAXUB X, A, A
#define UMAX_H(X, A) VPMAXUW X, A, A
#define UMAX_S(X, A) VPMAXUD X, A, A
#define UMAX_D(X, A) VPMAXUQ X, A, A
#define SMAX_B(X, A) VPMAXSB X, A, A
#define SMAX_H(X, A) VPMAXSW X, A, A
#define SMAX_S(X, A) VPMAXSD X, A, A
#define SMAX_D(X, A) VPMAXSQ X, A, A
#define AND(X, A) VPANDQ X, A, A
#define OR(X, A) VPORQ X, A, A
#define XOR(X, A) VPXORQ X, A, A

// func runAVX512(a *args, loop int) bool
TEXT ·runAVX512(SB), NOSPLIT, $0-17
	RUN

#include "loops.h"
