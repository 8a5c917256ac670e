//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"

// A step is a line: 16 float32, in V0 to V3. R0 is where to, R1 where from, R2 how many lines there are.

#define ARGUMENTS \
	MOVD dst+0(FP), R0; \
	MOVD src+8(FP), R1; \
	MOVD lines+16(FP), R2; \
	HALF_CONSTANTS

#define LOAD \
	FLDPQ 0(R1), (F0, F1); \
	FLDPQ 32(R1), (F2, F3)

#define STORE \
	FSTPQ (F0, F1), 0(R0); \
	FSTPQ (F2, F3), 32(R0)

#define EACH(OP) OP(0); OP(1); OP(2); OP(3)

#define BY_V4(A) FMUL_S(4, A)

#define NEXT(FROM, TO) \
	ADD  $FROM, R1; \
	ADD  $TO, R0; \
	SUB  $1, R2; \
	CBNZ R2, step; \
	RET

// func encodeFloat16Lines(dst, src unsafe.Pointer, lines int)
TEXT ·encodeFloat16Lines(SB), NOSPLIT, $0-24
	ARGUMENTS
step:
	LOAD
	EACH(CANON_S)
	PACK_F16(0, 1)
	PACK_F16(2, 3)
	FSTPQ (F0, F2), (R0)
	NEXT(64, 32)

// func decodeFloat16Lines(dst, src unsafe.Pointer, lines int)
TEXT ·decodeFloat16Lines(SB), NOSPLIT, $0-24
	ARGUMENTS
step:
	FLDPQ (R1), (F4, F5)
	FCVTL(4, 0)
	FCVTL2(4, 1)
	FCVTL(5, 2)
	FCVTL2(5, 3)
	STORE
	NEXT(32, 64)

// func encodeBFloat16Lines(dst, src unsafe.Pointer, lines int)
TEXT ·encodeBFloat16Lines(SB), NOSPLIT, $0-24
	ARGUMENTS
step:
	LOAD
	EACH(CANON_S)
	EACH(ROUND_BF16)
	PACK_BF16(0, 1)
	PACK_BF16(2, 3)
	FSTPQ (F0, F2), (R0)
	NEXT(64, 32)

// func decodeBFloat16Lines(dst, src unsafe.Pointer, lines int)
TEXT ·decodeBFloat16Lines(SB), NOSPLIT, $0-24
	ARGUMENTS
step:
	FLDPQ (R1), (F4, F5)
	SHLL(4, 0)
	SHLL2(4, 1)
	SHLL(5, 2)
	SHLL2(5, 3)
	STORE
	NEXT(32, 64)

// func encodeInt8Lines(dst, src unsafe.Pointer, lines int)
TEXT ·encodeInt8Lines(SB), NOSPLIT, $0-24
	ARGUMENTS
	MOVD $0x7fffffff, R3 // all bits but the sign
	VDUP R3, V16.S4
	MOVD $1, R4
	MOVD $254, R5
	MOVD $const_tooLarge, R6
	MOVD $const_roundUp, R7
	MOVD $255, R8
step:
	LOAD
	VAND V16.B16, V0.B16, V4.B16
	VAND V16.B16, V1.B16, V5.B16
	VAND V16.B16, V2.B16, V6.B16
	VAND V16.B16, V3.B16, V7.B16
	UMAX_S(5, 4)
	UMAX_S(7, 6)
	UMAX_S(6, 4)
	UMAXV(4, 4)
	VMOV V4.S[0], R3 // the largest
	CMPW R6, R3
	BHS  infinite
	ADDW R7, R3
	LSRW $23, R3
	SUBW $6, R3
	CMPW R4, R3
	CSEL LT, R4, R3, R3 // the exponent of the unit
	MOVB R3, (R0)
	SUB  R3, R5, R3
	LSL  $23, R3
	VDUP R3, V4.S4
	EACH(BY_V4)
	EACH(FCVTNS)
	UZP1_H(1, 0)
	UZP1_H(3, 2)
	UZP1_B(2, 0)
	FMOVQ F0, 1(R0)
	NEXT(64, 17)
infinite:
	MOVB  R8, (R0)
	VEOR  V0.B16, V0.B16, V0.B16
	FMOVQ F0, 1(R0)
	NEXT(64, 17)

// func decodeInt8Lines(dst, src unsafe.Pointer, lines int)
TEXT ·decodeInt8Lines(SB), NOSPLIT, $0-24
	ARGUMENTS
step:
	MOVBU (R1), R3
	CMP   $255, R3
	BEQ   infinite
	LSL   $23, R3
	VDUP  R3, V4.S4
	FMOVQ 1(R1), F5
	SXTL_B(5, 6)
	SXTL2_B(5, 7)
	SXTL_H(6, 0)
	SXTL2_H(6, 1)
	SXTL_H(7, 2)
	SXTL2_H(7, 3)
	EACH(SCVTF)
	EACH(BY_V4)
	STORE
	NEXT(17, 64)
infinite:
	FSTPQ (F30, F30), (R0)
	FSTPQ (F30, F30), 32(R0)
	NEXT(17, 64)
