//go:build !purego

#include "textflag.h"
#include "go_asm.h"

// A step is a line: 16 float32. DI is where to, SI where from, CX how many lines there are.

#define ARGUMENTS \
	MOVQ dst+0(FP), DI; \
	MOVQ src+8(FP), SI; \
	MOVQ lines+16(FP), CX

#define CANONICAL_NAN \
	MOVL $const_quietNaN, AX; \
	VMOVD AX, X15; \
	VPBROADCASTD X15, Y15

#define LOAD \
	VMOVUPS (SI), Y0; \
	VMOVUPS 32(SI), Y1

#define CANON(A, T) VCMPPS $3, A, A, T; VBLENDVPS T, Y15, A, A

#define STORE \
	VMOVUPS Y0, (DI); \
	VMOVUPS Y1, 32(DI)

#define NEXT(FROM, TO) \
	ADDQ $FROM, SI; \
	ADDQ $TO, DI; \
	DECQ CX; \
	JNZ  step; \
	VZEROUPPER; \
	RET

// func encodeFloat16Lines(dst, src unsafe.Pointer, lines int)
TEXT ·encodeFloat16Lines(SB), NOSPLIT, $0-24
	ARGUMENTS
	CANONICAL_NAN
step:
	LOAD
	CANON(Y0, Y2)
	CANON(Y1, Y3)
	VCVTPS2PH $0, Y0, X0
	VCVTPS2PH $0, Y1, X1
	VMOVDQU   X0, (DI)
	VMOVDQU   X1, 16(DI)
	NEXT(64, 32)

// func decodeFloat16Lines(dst, src unsafe.Pointer, lines int)
TEXT ·decodeFloat16Lines(SB), NOSPLIT, $0-24
	ARGUMENTS
step:
	VCVTPH2PS (SI), Y0
	VCVTPH2PS 16(SI), Y1
	STORE
	NEXT(32, 64)

// To nearest even: add half of what is cut off, less one if the last bit kept is 0.
#define ROUND(A, T) VPSRLD $16, A, T; VPAND Y13, T, T; VPADDD Y14, A, A; VPADDD T, A, A; VPSRLD $16, A, A

// func encodeBFloat16Lines(dst, src unsafe.Pointer, lines int)
TEXT ·encodeBFloat16Lines(SB), NOSPLIT, $0-24
	ARGUMENTS
	CANONICAL_NAN
	VPCMPEQD Y13, Y13, Y13
	VPSRLD   $17, Y13, Y14
	VPSRLD   $31, Y13, Y13
step:
	LOAD
	CANON(Y0, Y2)
	CANON(Y1, Y3)
	ROUND(Y0, Y2)
	ROUND(Y1, Y3)
	VPACKUSDW Y1, Y0, Y0
	VPERMQ    $0xD8, Y0, Y0
	VMOVDQU   Y0, (DI)
	NEXT(64, 32)

// func decodeBFloat16Lines(dst, src unsafe.Pointer, lines int)
TEXT ·decodeBFloat16Lines(SB), NOSPLIT, $0-24
	ARGUMENTS
step:
	VPMOVZXWD (SI), Y0
	VPMOVZXWD 16(SI), Y1
	VPSLLD    $16, Y0, Y0
	VPSLLD    $16, Y1, Y1
	STORE
	NEXT(32, 64)

// func encodeInt8Lines(dst, src unsafe.Pointer, lines int)
TEXT ·encodeInt8Lines(SB), NOSPLIT, $0-24
	ARGUMENTS
	VPCMPEQD Y14, Y14, Y14
	VPSRLD   $1, Y14, Y14  // all bits but the sign
	MOVL     $1, R8
step:
	LOAD
	VPAND        Y14, Y0, Y2
	VPAND        Y14, Y1, Y3
	VPMAXUD      Y3, Y2, Y2
	VEXTRACTI128 $1, Y2, X3
	VPMAXUD      X3, X2, X2
	VPSHUFD      $0x4E, X2, X3
	VPMAXUD      X3, X2, X2
	VPSHUFD      $0xB1, X2, X3
	VPMAXUD      X3, X2, X2
	VMOVD        X2, AX          // the largest
	CMPL         AX, $const_tooLarge
	JAE          infinite
	ADDL         $const_roundUp, AX
	SHRL         $23, AX
	SUBL         $6, AX
	CMPL         AX, R8
	CMOVLLT      R8, AX          // the exponent of the unit
	MOVB         AX, (DI)
	MOVL         $254, BX
	SUBL         AX, BX
	SHLL         $23, BX
	VMOVD        BX, X4
	VPBROADCASTD X4, Y4
	VMULPS       Y4, Y0, Y0
	VMULPS       Y4, Y1, Y1
	VCVTPS2DQ    Y0, Y0
	VCVTPS2DQ    Y1, Y1
	VPACKSSDW    Y1, Y0, Y0
	VPERMQ       $0xD8, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPACKSSWB    X1, X0, X0
	VMOVDQU      X0, 1(DI)
	NEXT(64, 17)
infinite:
	MOVB    $255, (DI)
	VPXOR   X0, X0, X0
	VMOVDQU X0, 1(DI)
	NEXT(64, 17)

// func decodeInt8Lines(dst, src unsafe.Pointer, lines int)
TEXT ·decodeInt8Lines(SB), NOSPLIT, $0-24
	ARGUMENTS
	CANONICAL_NAN
step:
	MOVBLZX      (SI), AX
	CMPL         AX, $255
	JEQ          infinite
	SHLL         $23, AX
	VMOVD        AX, X4
	VPBROADCASTD X4, Y4
	VPMOVSXBD    1(SI), Y0
	VPMOVSXBD    9(SI), Y1
	VCVTDQ2PS    Y0, Y0
	VCVTDQ2PS    Y1, Y1
	VMULPS       Y4, Y0, Y0
	VMULPS       Y4, Y1, Y1
	STORE
	NEXT(17, 64)
infinite:
	VMOVUPS Y15, (DI)
	VMOVUPS Y15, 32(DI)
	NEXT(17, 64)
