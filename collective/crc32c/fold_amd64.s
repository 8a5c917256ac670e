//go:build !purego

#include "textflag.h"

// Z0 to Z3 are the rest, Z4 holds the factors. A step multiplies both halves of each 128 bits, and adds them to what follows.

#define STEP(I, R, T) \
	VPCLMULQDQ $0x00, Z4, R, T; \
	VPCLMULQDQ $0x11, Z4, R, R; \
	VPTERNLOGQ $0x96, I*64(SI), T, R

// func foldAVX512(rest *[foldBytes]byte, p []byte, by *[2]uint64) uint32
TEXT ·foldAVX512(SB), NOSPLIT, $0-44
	MOVQ rest+0(FP), DI
	MOVQ p_base+8(FP), SI
	MOVQ p_len+16(FP), CX
	MOVQ by+32(FP), AX
	VBROADCASTI32X4 (AX), Z4
	VMOVDQU64 0(DI), Z0
	VMOVDQU64 64(DI), Z1
	VMOVDQU64 128(DI), Z2
	VMOVDQU64 192(DI), Z3
	ADDQ SI, CX
	JMP  test
loop:
	STEP(0, Z0, Z5)
	STEP(1, Z1, Z6)
	STEP(2, Z2, Z7)
	STEP(3, Z3, Z8)
	ADDQ $256, SI
test:
	CMPQ SI, CX
	JB   loop
	VMOVDQU64 Z0, 0(DI)
	VMOVDQU64 Z1, 64(DI)
	VMOVDQU64 Z2, 128(DI)
	VMOVDQU64 Z3, 192(DI)
	VZEROUPPER
	XORQ AX, AX
	MOVQ $32, CX
remainder:
	CRC32Q (DI), AX
	ADDQ $8, DI
	DECQ CX
	JNZ  remainder
	MOVL AX, ret+40(FP)
	RET
