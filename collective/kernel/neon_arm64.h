// Vector instructions that Go's assembler lacks, or lacks for these types, as they are encoded in section C7.2 of
// the Arm Architecture Reference Manual (DDI 0487). All of them are in every ARMv8-A CPU. Parameters are numbers of
// vector registers. TestEncodings compares each word with what another assembler makes of the comment behind it.

#define FADD_S(X, A) WORD $(0x4e20d400 | (X)<<16 | (A)<<5 | (A)) // fadd A.4s, A.4s, X.4s
#define FADD_D(X, A) WORD $(0x4e60d400 | (X)<<16 | (A)<<5 | (A)) // fadd A.2d, A.2d, X.2d
#define FMUL_S(X, A) WORD $(0x6e20dc00 | (X)<<16 | (A)<<5 | (A)) // fmul A.4s, A.4s, X.4s
#define FMUL_D(X, A) WORD $(0x6e60dc00 | (X)<<16 | (A)<<5 | (A)) // fmul A.2d, A.2d, X.2d
#define FMIN_S(X, A) WORD $(0x4ea0f400 | (X)<<16 | (A)<<5 | (A)) // fmin A.4s, A.4s, X.4s
#define FMIN_D(X, A) WORD $(0x4ee0f400 | (X)<<16 | (A)<<5 | (A)) // fmin A.2d, A.2d, X.2d
#define FMAX_S(X, A) WORD $(0x4e20f400 | (X)<<16 | (A)<<5 | (A)) // fmax A.4s, A.4s, X.4s
#define FMAX_D(X, A) WORD $(0x4e60f400 | (X)<<16 | (A)<<5 | (A)) // fmax A.2d, A.2d, X.2d
#define FCMEQ_S(A, T) WORD $(0x4e20e400 | (A)<<16 | (A)<<5 | (T)) // fcmeq T.4s, A.4s, A.4s
#define FCMEQ_D(A, T) WORD $(0x4e60e400 | (A)<<16 | (A)<<5 | (T)) // fcmeq T.2d, A.2d, A.2d

#define ADD_B(X, A) WORD $(0x4e208400 | (X)<<16 | (A)<<5 | (A)) // add A.16b, A.16b, X.16b
#define ADD_H(X, A) WORD $(0x4e608400 | (X)<<16 | (A)<<5 | (A)) // add A.8h, A.8h, X.8h
#define ADD_S(X, A) WORD $(0x4ea08400 | (X)<<16 | (A)<<5 | (A)) // add A.4s, A.4s, X.4s
#define ADD_D(X, A) WORD $(0x4ee08400 | (X)<<16 | (A)<<5 | (A)) // add A.2d, A.2d, X.2d
#define MUL_B(X, A) WORD $(0x4e209c00 | (X)<<16 | (A)<<5 | (A)) // mul A.16b, A.16b, X.16b
#define MUL_H(X, A) WORD $(0x4e609c00 | (X)<<16 | (A)<<5 | (A)) // mul A.8h, A.8h, X.8h
#define MUL_S(X, A) WORD $(0x4ea09c00 | (X)<<16 | (A)<<5 | (A)) // mul A.4s, A.4s, X.4s
#define SMIN_B(X, A) WORD $(0x4e206c00 | (X)<<16 | (A)<<5 | (A)) // smin A.16b, A.16b, X.16b
#define SMIN_H(X, A) WORD $(0x4e606c00 | (X)<<16 | (A)<<5 | (A)) // smin A.8h, A.8h, X.8h
#define SMIN_S(X, A) WORD $(0x4ea06c00 | (X)<<16 | (A)<<5 | (A)) // smin A.4s, A.4s, X.4s
#define SMAX_B(X, A) WORD $(0x4e206400 | (X)<<16 | (A)<<5 | (A)) // smax A.16b, A.16b, X.16b
#define SMAX_H(X, A) WORD $(0x4e606400 | (X)<<16 | (A)<<5 | (A)) // smax A.8h, A.8h, X.8h
#define SMAX_S(X, A) WORD $(0x4ea06400 | (X)<<16 | (A)<<5 | (A)) // smax A.4s, A.4s, X.4s
#define UMIN_B(X, A) WORD $(0x6e206c00 | (X)<<16 | (A)<<5 | (A)) // umin A.16b, A.16b, X.16b
#define UMIN_H(X, A) WORD $(0x6e606c00 | (X)<<16 | (A)<<5 | (A)) // umin A.8h, A.8h, X.8h
#define UMIN_S(X, A) WORD $(0x6ea06c00 | (X)<<16 | (A)<<5 | (A)) // umin A.4s, A.4s, X.4s
#define UMAX_B(X, A) WORD $(0x6e206400 | (X)<<16 | (A)<<5 | (A)) // umax A.16b, A.16b, X.16b
#define UMAX_H(X, A) WORD $(0x6e606400 | (X)<<16 | (A)<<5 | (A)) // umax A.8h, A.8h, X.8h
#define UMAX_S(X, A) WORD $(0x6ea06400 | (X)<<16 | (A)<<5 | (A)) // umax A.4s, A.4s, X.4s
#define UMAXV(X, A) WORD $(0x6eb0a800 | (X)<<5 | (A)) // umaxv sA, X.4s
#define CMGT_D(N, M, T) WORD $(0x4ee03400 | (M)<<16 | (N)<<5 | (T)) // cmgt T.2d, N.2d, M.2d
#define CMHI_D(N, M, T) WORD $(0x6ee03400 | (M)<<16 | (N)<<5 | (T)) // cmhi T.2d, N.2d, M.2d

#define AND(X, A) WORD $(0x4e201c00 | (X)<<16 | (A)<<5 | (A)) // and A.16b, A.16b, X.16b
#define OR(X, A) WORD $(0x4ea01c00 | (X)<<16 | (A)<<5 | (A)) // orr A.16b, A.16b, X.16b
#define XOR(X, A) WORD $(0x6e201c00 | (X)<<16 | (A)<<5 | (A)) // eor A.16b, A.16b, X.16b
// A takes the bits of X where T has ones, or zeros.
#define BIT(X, T, A) WORD $(0x6ea01c00 | (T)<<16 | (X)<<5 | (A)) // bit A.16b, X.16b, T.16b
#define BIF(X, T, A) WORD $(0x6ee01c00 | (T)<<16 | (X)<<5 | (A)) // bif A.16b, X.16b, T.16b
#define SHL_15(X, A) WORD $(0x4f2f5400 | (X)<<5 | (A)) // shl A.4s, X.4s, #15
#define USRA_31(X, A) WORD $(0x6f211400 | (X)<<5 | (A)) // usra A.4s, X.4s, #31

// Conversions from the lower and the upper half of X, and to those of A.
#define FCVTL(X, A) WORD $(0x0e217800 | (X)<<5 | (A)) // fcvtl A.4s, X.4h
#define FCVTL2(X, A) WORD $(0x4e217800 | (X)<<5 | (A)) // fcvtl2 A.4s, X.8h
#define FCVTN(X, A) WORD $(0x0e216800 | (X)<<5 | (A)) // fcvtn A.4h, X.4s
#define FCVTN2(X, A) WORD $(0x4e216800 | (X)<<5 | (A)) // fcvtn2 A.8h, X.4s
#define SHLL(X, A) WORD $(0x2e613800 | (X)<<5 | (A)) // shll A.4s, X.4h, #16
#define SHLL2(X, A) WORD $(0x6e613800 | (X)<<5 | (A)) // shll2 A.4s, X.8h, #16
#define SXTL_B(X, A) WORD $(0x0f08a400 | (X)<<5 | (A)) // sxtl A.8h, X.8b
#define SXTL2_B(X, A) WORD $(0x4f08a400 | (X)<<5 | (A)) // sxtl2 A.8h, X.16b
#define SXTL_H(X, A) WORD $(0x0f10a400 | (X)<<5 | (A)) // sxtl A.4s, X.4h
#define SXTL2_H(X, A) WORD $(0x4f10a400 | (X)<<5 | (A)) // sxtl2 A.4s, X.8h
#define SCVTF(A) WORD $(0x4e21d800 | (A)<<5 | (A)) // scvtf A.4s, A.4s
#define FCVTNS(A) WORD $(0x4e21a800 | (A)<<5 | (A)) // fcvtns A.4s, A.4s
// A takes the even, or the odd, of the elements of A and X.
#define UZP1_B(X, A) WORD $(0x4e001800 | (X)<<16 | (A)<<5 | (A)) // uzp1 A.16b, A.16b, X.16b
#define UZP1_H(X, A) WORD $(0x4e401800 | (X)<<16 | (A)<<5 | (A)) // uzp1 A.8h, A.8h, X.8h
#define UZP2_H(X, A) WORD $(0x4e405800 | (X)<<16 | (A)<<5 | (A)) // uzp2 A.8h, A.8h, X.8h

// What loops do with float32 before they store them. V28 is a temporary; HALF_CONSTANTS sets V29 and V30, and uses R3.

#define HALF_CONSTANTS \
	MOVD $const_quietNaN, R3; \
	VDUP R3, V30.S4;          \
	MOVD $0x7fff, R3;         \
	VDUP R3, V29.S4

// A NaN is the only number that does not equal itself.
#define CANON_S(A) FCMEQ_S(A, 28); BIF(30, 28, A)
#define CANON_D(A) FCMEQ_D(A, 28); BIF(30, 28, A)

#define PACK_F16(A, B) FCVTN(A, A); FCVTN2(B, A)

// To nearest even: add half of what is cut off, less one if the last bit kept is 0.
#define ROUND_BF16(A) SHL_15(A, 28); USRA_31(28, A); ADD_S(29, A)
#define PACK_BF16(A, B) UZP2_H(B, A)
