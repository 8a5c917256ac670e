//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "vector_amd64.h"

// Accumulators are Y0 to Y7, Y8 is the input; Y13 and Y14 hold the scale factors, Y15 the canonical NaN,
// Y9 and Y10 constants, Y11 and Y12 temporaries.

#define LOAD(GET) \
	GET(0, Y0); GET(1, Y1); GET(2, Y2); GET(3, Y3); \
	GET(4, Y4); GET(5, Y5); GET(6, Y6); GET(7, Y7)

#define FOLD(GET, OP) \
	GET(0, Y8); OP(Y8, Y0); GET(1, Y8); OP(Y8, Y1); \
	GET(2, Y8); OP(Y8, Y2); GET(3, Y8); OP(Y8, Y3); \
	GET(4, Y8); OP(Y8, Y4); GET(5, Y8); OP(Y8, Y5); \
	GET(6, Y8); OP(Y8, Y6); GET(7, Y8); OP(Y8, Y7)

#define FOLDSCALED(GET, MUL, OP) \
	GET(0, Y8); MUL Y13, Y8, Y8; OP(Y8, Y0); GET(1, Y8); MUL Y13, Y8, Y8; OP(Y8, Y1); \
	GET(2, Y8); MUL Y13, Y8, Y8; OP(Y8, Y2); GET(3, Y8); MUL Y13, Y8, Y8; OP(Y8, Y3); \
	GET(4, Y8); MUL Y13, Y8, Y8; OP(Y8, Y4); GET(5, Y8); MUL Y13, Y8, Y8; OP(Y8, Y5); \
	GET(6, Y8); MUL Y13, Y8, Y8; OP(Y8, Y6); GET(7, Y8); MUL Y13, Y8, Y8; OP(Y8, Y7)

#define SCALE(MUL, BY) \
	MUL BY, Y0, Y0; MUL BY, Y1, Y1; MUL BY, Y2, Y2; MUL BY, Y3, Y3; \
	MUL BY, Y4, Y4; MUL BY, Y5, Y5; MUL BY, Y6, Y6; MUL BY, Y7, Y7

#define EACH(OP) \
	OP(Y0); OP(Y1); OP(Y2); OP(Y3); OP(Y4); OP(Y5); OP(Y6); OP(Y7)

#define PUT(MOVE, I, R) MOVE R, I*32(AX)(CX*1)
#define STORE8(MOVE) \
	PUT(MOVE, 0, Y0); PUT(MOVE, 1, Y1); PUT(MOVE, 2, Y2); PUT(MOVE, 3, Y3); \
	PUT(MOVE, 4, Y4); PUT(MOVE, 5, Y5); PUT(MOVE, 6, Y6); PUT(MOVE, 7, Y7)
#define STORE4(MOVE) \
	PUT(MOVE, 0, Y0); PUT(MOVE, 1, Y2); PUT(MOVE, 2, Y4); PUT(MOVE, 3, Y6)

#define GET(I, R) VMOVDQU I*32(AX)(CX*1), R
#define GET_F16(I, R) VCVTPH2PS I*16(AX)(CX*1), R
#define GET_BF16(I, R) VPMOVZXWD I*16(AX)(CX*1), R; VPSLLD $16, R, R

#define FADD_S(X, A) VADDPS X, A, A
#define FADD_D(X, A) VADDPD X, A, A
#define FMUL_S(X, A) VMULPS X, A, A
#define FMUL_D(X, A) VMULPD X, A, A
// The CPU's minimum is its second operand if one is NaN or both are zero. Of both orders "or" keeps the
// sign of -0; an all-ones mask makes a NaN where there was one.
#define FMIN_S(X, A) VMINPS X, A, Y12; VMINPS A, X, Y11; VCMPPS $3, X, A, X; VORPS Y11, Y12, A; VORPS X, A, A
#define FMAX_S(X, A) VMAXPS X, A, Y12; VMAXPS A, X, Y11; VCMPPS $3, X, A, X; VANDPS Y11, Y12, A; VORPS X, A, A
#define FMIN_D(X, A) VMINPD X, A, Y12; VMINPD A, X, Y11; VCMPPD $3, X, A, X; VORPD Y11, Y12, A; VORPD X, A, A
#define FMAX_D(X, A) VMAXPD X, A, Y12; VMAXPD A, X, Y11; VCMPPD $3, X, A, X; VANDPD Y11, Y12, A; VORPD X, A, A

#define CANON_S(A) VCMPPS $3, A, A, Y8; VBLENDVPS Y8, Y15, A, A
#define CANON_D(A) VCMPPD $3, A, A, Y8; VBLENDVPD Y8, Y15, A, A

#define PACK_F16(A, XA, B, XB) VCVTPS2PH $0, A, XA; VCVTPS2PH $0, B, XB; VINSERTI128 $1, XB, A, A
#define FINISH_F16 EACH(CANON_S); \
	PACK_F16(Y0, X0, Y1, X1); PACK_F16(Y2, X2, Y3, X3); PACK_F16(Y4, X4, Y5, X5); PACK_F16(Y6, X6, Y7, X7)

// To nearest even: add half of what is cut off, less one if the last bit kept is 0.
#define ROUND_BF16(A) VPSRLD $16, A, Y8; VPAND Y9, Y8, Y8; VPADDD Y10, A, A; VPADDD Y8, A, A; VPSRLD $16, A, A
#define PACK_BF16(A, B) VPACKUSDW B, A, A; VPERMQ $0xD8, A, A
#define FINISH_BF16 EACH(CANON_S); EACH(ROUND_BF16); \
	PACK_BF16(Y0, Y1); PACK_BF16(Y2, Y3); PACK_BF16(Y4, Y5); PACK_BF16(Y6, Y7)

#define SINGLE_CONSTANTS \
	VBROADCASTSS args_pre32(DI), Y13;  \
	VBROADCASTSS args_post32(DI), Y14; \
	MOVL $const_quietNaN, AX;          \
	VMOVD AX, X15;                     \
	VPBROADCASTD X15, Y15

#define DOUBLE_CONSTANTS \
	VBROADCASTSD args_pre(DI), Y13;    \
	VBROADCASTSD args_post(DI), Y14;   \
	MOVQ $0x7ff8000000000000, AX;      \
	VMOVQ AX, X15;                     \
	VPBROADCASTQ X15, Y15

#define BFLOAT16_CONSTANTS \
	VPCMPEQD Y9, Y9, Y9; \
	VPSRLD $17, Y9, Y10; \
	VPSRLD $31, Y9, Y9

#define SINGLES(OP) \
	ARGUMENTS; SINGLE_CONSTANTS; \
	FLOAT_LOOP(LOAD(GET), SCALE(VMULPS, Y13), FOLD(GET, OP), FOLDSCALED(GET, VMULPS, OP), SCALE(VMULPS, Y14), EACH(CANON_S), STORE8(VMOVDQU), STORE8(VMOVNTDQ), 256)

#define DOUBLES(OP) \
	ARGUMENTS; DOUBLE_CONSTANTS; \
	FLOAT_LOOP(LOAD(GET), SCALE(VMULPD, Y13), FOLD(GET, OP), FOLDSCALED(GET, VMULPD, OP), SCALE(VMULPD, Y14), EACH(CANON_D), STORE8(VMOVDQU), STORE8(VMOVNTDQ), 256)

#define HALVES(GET, OP, FINISH) \
	FLOAT_LOOP(LOAD(GET), SCALE(VMULPS, Y13), FOLD(GET, OP), FOLDSCALED(GET, VMULPS, OP), SCALE(VMULPS, Y14), FINISH, STORE4(VMOVDQU), STORE4(VMOVNTDQ), 128)

#define FLOAT16(OP) ARGUMENTS; SINGLE_CONSTANTS; HALVES(GET_F16, OP, FINISH_F16)
#define BFLOAT16(OP) ARGUMENTS; SINGLE_CONSTANTS; BFLOAT16_CONSTANTS; HALVES(GET_BF16, OP, FINISH_BF16)

#define INTEGERS(OP) \
	ARGUMENTS; \
	INTEGER_LOOP(LOAD(GET), FOLD(GET, OP), STORE8(VMOVDQU), STORE8(VMOVNTDQ), 256)

#define ADD_B(X, A) VPADDB X, A, A
#define ADD_H(X, A) VPADDW X, A, A
#define ADD_S(X, A) VPADDD X, A, A
#define ADD_D(X, A) VPADDQ X, A, A
// The CPU multiplies no bytes: it multiplies words, once of the lower bytes and once of the upper ones.
#define MUL_B(X, A) \
	VPSRLW $8, A, Y11; VPSRLW $8, X, Y12; VPMULLW Y12, Y11, Y11; VPSLLW $8, Y11, Y11; \
	VPMULLW X, A, A; VPSLLW $8, A, A; VPSRLW $8, A, A; VPOR Y11, A, A
#define MUL_H(X, A) VPMULLW X, A, A
#define MUL_S(X, A) VPMULLD X, A, A
#define UMIN_B(X, A) VPMINUB X, A, A
#define UMIN_H(X, A) VPMINUW X, A, A
#define UMIN_S(X, A) VPMINUD X, A, A
#define SMIN_B(X, A) VPMINSB X, A, A
#define SMIN_H(X, A) VPMINSW X, A, A
#define SMIN_S(X, A) VPMINSD X, A, A
#define UMAX_B(X, A) VPMAXUB X, A, A
#define UMAX_H(X, A) VPMAXUW X, A, A
#define UMAX_S(X, A) VPMAXUD X, A, A
#define SMAX_B(X, A) VPMAXSB X, A, A
#define SMAX_H(X, A) VPMAXSW X, A, A
#define SMAX_S(X, A) VPMAXSD X, A, A
// AVX2 compares 64 bits, as signed, and then takes the lesser or the greater. SIGN makes unsigned ones as comparable.
#define SIGN VPCMPEQQ Y12, Y12, Y12; VPSLLQ $63, Y12, Y12
#define SMIN_D(X, A) VPCMPGTQ X, A, Y12; VPBLENDVB Y12, X, A, A
#define SMAX_D(X, A) VPCMPGTQ A, X, Y12; VPBLENDVB Y12, X, A, A
#define UMIN_D(X, A) SIGN; VPXOR Y12, X, Y11; VPXOR Y12, A, Y12; VPCMPGTQ Y11, Y12, Y12; VPBLENDVB Y12, X, A, A
#define UMAX_D(X, A) SIGN; VPXOR Y12, X, Y11; VPXOR Y12, A, Y12; VPCMPGTQ Y12, Y11, Y12; VPBLENDVB Y12, X, A, A
#define AND(X, A) VPAND X, A, A
#define OR(X, A) VPOR X, A, A
#define XOR(X, A) VPXOR X, A, A

// func runAVX2(a *args, loop int) bool
TEXT ·runAVX2(SB), NOSPLIT, $0-17
	RUN

#include "loops.h"
