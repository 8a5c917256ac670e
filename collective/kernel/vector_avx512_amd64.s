//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "vector_amd64.h"

// Accumulators are Z0 to Z3, Z8 is the input; Z13 and Z14 hold the scale factors, Z15 the canonical NaN,
// Z11 and Z12 constants or temporaries. A step is as long as with AVX2.

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

#define ADD_PS(X, A) VADDPS X, A, A
#define ADD_PD(X, A) VADDPD X, A, A
// The CPU's minimum is its second operand if one is NaN or both are zero. Of both orders "or" keeps the
// sign of -0; the mask puts in a NaN where there was one.
#define MIN_PS(X, A) VCMPPS $3, X, A, K1; VMINPS X, A, Z12; VMINPS A, X, Z11; VORPS Z11, Z12, A; VMOVAPS Z15, K1, A
#define MAX_PS(X, A) VCMPPS $3, X, A, K1; VMAXPS X, A, Z12; VMAXPS A, X, Z11; VANDPS Z11, Z12, A; VMOVAPS Z15, K1, A
#define MIN_PD(X, A) VCMPPD $3, X, A, K1; VMINPD X, A, Z12; VMINPD A, X, Z11; VORPD Z11, Z12, A; VMOVAPD Z15, K1, A
#define MAX_PD(X, A) VCMPPD $3, X, A, K1; VMAXPD X, A, Z12; VMAXPD A, X, Z11; VANDPD Z11, Z12, A; VMOVAPD Z15, K1, A

#define CANON_PS(A) VCMPPS $3, A, A, K1; VMOVAPS Z15, K1, A
#define CANON_PD(A) VCMPPD $3, A, A, K1; VMOVAPD Z15, K1, A

#define PACK_F16(A, YA, B, YB) VCVTPS2PH $0, A, YA; VCVTPS2PH $0, B, YB; VINSERTI64X4 $1, YB, A, A
#define FINISH_F16 EACH(CANON_PS); PACK_F16(Z0, Y0, Z1, Y1); PACK_F16(Z2, Y2, Z3, Y3)

// To nearest even: add half of what is cut off, less one if the last bit kept is 0.
#define ROUND_BF16(A) VPSRLD $16, A, Z8; VPANDD Z11, Z8, Z8; VPADDD Z12, A, A; VPADDD Z8, A, A; VPSRLD $16, A, A
#define PACK_BF16(A, YA, B, YB) VPMOVDW A, YA; VPMOVDW B, YB; VINSERTI64X4 $1, YB, A, A
#define FINISH_BF16 EACH(CANON_PS); EACH(ROUND_BF16); PACK_BF16(Z0, Y0, Z1, Y1); PACK_BF16(Z2, Y2, Z3, Y3)

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

#define SINGLES(OP) \
	ARGUMENTS;        \
	SINGLE_CONSTANTS; \
	FLOATS(LOAD(GET), SCALE(VMULPS, Z13), FOLD(GET, OP), FOLDSCALED(GET, VMULPS, OP), SCALE(VMULPS, Z14), EACH(CANON_PS), STORE4(VMOVDQU64), STORE4(VMOVNTDQ), 256)

#define DOUBLES(OP) \
	ARGUMENTS;        \
	DOUBLE_CONSTANTS; \
	FLOATS(LOAD(GET), SCALE(VMULPD, Z13), FOLD(GET, OP), FOLDSCALED(GET, VMULPD, OP), SCALE(VMULPD, Z14), EACH(CANON_PD), STORE4(VMOVDQU64), STORE4(VMOVNTDQ), 256)

#define HALVES(GET, FINISH) \
	FLOATS(LOAD(GET), SCALE(VMULPS, Z13), FOLD(GET, ADD_PS), FOLDSCALED(GET, VMULPS, ADD_PS), SCALE(VMULPS, Z14), FINISH, STORE2(VMOVDQU64), STORE2(VMOVNTDQ), 128)

#define BITS(OP) \
	ARGUMENTS; \
	INTEGERS(LOAD(GET), FOLD(GET, OP), STORE4(VMOVDQU64), STORE4(VMOVNTDQ), 256)

// func sumFloat32AVX512(a *args)
TEXT ·sumFloat32AVX512(SB), NOSPLIT, $0-8
	SINGLES(ADD_PS)

// func minFloat32AVX512(a *args)
TEXT ·minFloat32AVX512(SB), NOSPLIT, $0-8
	SINGLES(MIN_PS)

// func maxFloat32AVX512(a *args)
TEXT ·maxFloat32AVX512(SB), NOSPLIT, $0-8
	SINGLES(MAX_PS)

// func sumFloat64AVX512(a *args)
TEXT ·sumFloat64AVX512(SB), NOSPLIT, $0-8
	DOUBLES(ADD_PD)

// func minFloat64AVX512(a *args)
TEXT ·minFloat64AVX512(SB), NOSPLIT, $0-8
	DOUBLES(MIN_PD)

// func maxFloat64AVX512(a *args)
TEXT ·maxFloat64AVX512(SB), NOSPLIT, $0-8
	DOUBLES(MAX_PD)

// func sumFloat16AVX512(a *args)
TEXT ·sumFloat16AVX512(SB), NOSPLIT, $0-8
	ARGUMENTS
	SINGLE_CONSTANTS
	HALVES(GET_F16, FINISH_F16)

// func sumBFloat16AVX512(a *args)
TEXT ·sumBFloat16AVX512(SB), NOSPLIT, $0-8
	ARGUMENTS
	SINGLE_CONSTANTS
	VPTERNLOGD $0xff, Z11, Z11, Z11
	VPSRLD $17, Z11, Z12
	VPSRLD $31, Z11, Z11
	HALVES(GET_BF16, FINISH_BF16)

#define ADD_B(X, A) VPADDB X, A, A
#define ADD_W(X, A) VPADDW X, A, A
#define ADD_D(X, A) VPADDD X, A, A
#define ADD_Q(X, A) VPADDQ X, A, A
#define AND(X, A) VPANDQ X, A, A
#define OR(X, A) VPORQ X, A, A
#define XOR(X, A) VPXORQ X, A, A

// func sum8AVX512(a *args)
TEXT ·sum8AVX512(SB), NOSPLIT, $0-8
	BITS(ADD_B)

// func sum16AVX512(a *args)
TEXT ·sum16AVX512(SB), NOSPLIT, $0-8
	BITS(ADD_W)

// func sum32AVX512(a *args)
TEXT ·sum32AVX512(SB), NOSPLIT, $0-8
	BITS(ADD_D)

// func sum64AVX512(a *args)
TEXT ·sum64AVX512(SB), NOSPLIT, $0-8
	BITS(ADD_Q)

// func andAVX512(a *args)
TEXT ·andAVX512(SB), NOSPLIT, $0-8
	BITS(AND)

// func orAVX512(a *args)
TEXT ·orAVX512(SB), NOSPLIT, $0-8
	BITS(OR)

// func xorAVX512(a *args)
TEXT ·xorAVX512(SB), NOSPLIT, $0-8
	BITS(XOR)
