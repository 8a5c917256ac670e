//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "vector_amd64.h"

// Accumulators are Y0 to Y7, Y8 is the input; Y13 and Y14 hold the scale factors, Y15 the canonical NaN,
// Y11 and Y12 constants or temporaries.

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

#define ADD_PS(X, A) VADDPS X, A, A
#define ADD_PD(X, A) VADDPD X, A, A
// The CPU's minimum is its second operand if one is NaN or both are zero. Of both orders "or" keeps the
// sign of -0; an all-ones mask makes a NaN where there was one.
#define MIN_PS(X, A) VMINPS X, A, Y12; VMINPS A, X, Y11; VCMPPS $3, X, A, X; VORPS Y11, Y12, A; VORPS X, A, A
#define MAX_PS(X, A) VMAXPS X, A, Y12; VMAXPS A, X, Y11; VCMPPS $3, X, A, X; VANDPS Y11, Y12, A; VORPS X, A, A
#define MIN_PD(X, A) VMINPD X, A, Y12; VMINPD A, X, Y11; VCMPPD $3, X, A, X; VORPD Y11, Y12, A; VORPD X, A, A
#define MAX_PD(X, A) VMAXPD X, A, Y12; VMAXPD A, X, Y11; VCMPPD $3, X, A, X; VANDPD Y11, Y12, A; VORPD X, A, A

#define CANON_PS(A) VCMPPS $3, A, A, Y8; VBLENDVPS Y8, Y15, A, A
#define CANON_PD(A) VCMPPD $3, A, A, Y8; VBLENDVPD Y8, Y15, A, A

#define PACK_F16(A, XA, B, XB) VCVTPS2PH $0, A, XA; VCVTPS2PH $0, B, XB; VINSERTI128 $1, XB, A, A
#define FINISH_F16 EACH(CANON_PS); \
	PACK_F16(Y0, X0, Y1, X1); PACK_F16(Y2, X2, Y3, X3); PACK_F16(Y4, X4, Y5, X5); PACK_F16(Y6, X6, Y7, X7)

// To nearest even: add half of what is cut off, less one if the last bit kept is 0.
#define ROUND_BF16(A) VPSRLD $16, A, Y8; VPAND Y11, Y8, Y8; VPADDD Y12, A, A; VPADDD Y8, A, A; VPSRLD $16, A, A
#define PACK_BF16(A, B) VPACKUSDW B, A, A; VPERMQ $0xD8, A, A
#define FINISH_BF16 EACH(CANON_PS); EACH(ROUND_BF16); \
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

#define SINGLES(OP) \
	ARGUMENTS;        \
	SINGLE_CONSTANTS; \
	FLOATS(LOAD(GET), SCALE(VMULPS, Y13), FOLD(GET, OP), FOLDSCALED(GET, VMULPS, OP), SCALE(VMULPS, Y14), EACH(CANON_PS), STORE8(VMOVDQU), STORE8(VMOVNTDQ), 256)

#define DOUBLES(OP) \
	ARGUMENTS;        \
	DOUBLE_CONSTANTS; \
	FLOATS(LOAD(GET), SCALE(VMULPD, Y13), FOLD(GET, OP), FOLDSCALED(GET, VMULPD, OP), SCALE(VMULPD, Y14), EACH(CANON_PD), STORE8(VMOVDQU), STORE8(VMOVNTDQ), 256)

#define HALVES(GET, FINISH) \
	FLOATS(LOAD(GET), SCALE(VMULPS, Y13), FOLD(GET, ADD_PS), FOLDSCALED(GET, VMULPS, ADD_PS), SCALE(VMULPS, Y14), FINISH, STORE4(VMOVDQU), STORE4(VMOVNTDQ), 128)

#define BITS(OP) \
	ARGUMENTS; \
	INTEGERS(LOAD(GET), FOLD(GET, OP), STORE8(VMOVDQU), STORE8(VMOVNTDQ), 256)

// func sumFloat32AVX2(a *args)
TEXT ·sumFloat32AVX2(SB), NOSPLIT, $0-8
	SINGLES(ADD_PS)

// func minFloat32AVX2(a *args)
TEXT ·minFloat32AVX2(SB), NOSPLIT, $0-8
	SINGLES(MIN_PS)

// func maxFloat32AVX2(a *args)
TEXT ·maxFloat32AVX2(SB), NOSPLIT, $0-8
	SINGLES(MAX_PS)

// func sumFloat64AVX2(a *args)
TEXT ·sumFloat64AVX2(SB), NOSPLIT, $0-8
	DOUBLES(ADD_PD)

// func minFloat64AVX2(a *args)
TEXT ·minFloat64AVX2(SB), NOSPLIT, $0-8
	DOUBLES(MIN_PD)

// func maxFloat64AVX2(a *args)
TEXT ·maxFloat64AVX2(SB), NOSPLIT, $0-8
	DOUBLES(MAX_PD)

// func sumFloat16AVX2(a *args)
TEXT ·sumFloat16AVX2(SB), NOSPLIT, $0-8
	ARGUMENTS
	SINGLE_CONSTANTS
	HALVES(GET_F16, FINISH_F16)

// func sumBFloat16AVX2(a *args)
TEXT ·sumBFloat16AVX2(SB), NOSPLIT, $0-8
	ARGUMENTS
	SINGLE_CONSTANTS
	VPCMPEQD Y11, Y11, Y11
	VPSRLD   $17, Y11, Y12
	VPSRLD   $31, Y11, Y11
	HALVES(GET_BF16, FINISH_BF16)

#define ADD_B(X, A) VPADDB X, A, A
#define ADD_W(X, A) VPADDW X, A, A
#define ADD_D(X, A) VPADDD X, A, A
#define ADD_Q(X, A) VPADDQ X, A, A
#define AND(X, A) VPAND X, A, A
#define OR(X, A) VPOR X, A, A
#define XOR(X, A) VPXOR X, A, A

// func sum8AVX2(a *args)
TEXT ·sum8AVX2(SB), NOSPLIT, $0-8
	BITS(ADD_B)

// func sum16AVX2(a *args)
TEXT ·sum16AVX2(SB), NOSPLIT, $0-8
	BITS(ADD_W)

// func sum32AVX2(a *args)
TEXT ·sum32AVX2(SB), NOSPLIT, $0-8
	BITS(ADD_D)

// func sum64AVX2(a *args)
TEXT ·sum64AVX2(SB), NOSPLIT, $0-8
	BITS(ADD_Q)

// func andAVX2(a *args)
TEXT ·andAVX2(SB), NOSPLIT, $0-8
	BITS(AND)

// func orAVX2(a *args)
TEXT ·orAVX2(SB), NOSPLIT, $0-8
	BITS(OR)

// func xorAVX2(a *args)
TEXT ·xorAVX2(SB), NOSPLIT, $0-8
	BITS(XOR)
