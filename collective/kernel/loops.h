// The loops of an instruction set, and the table of where they start, by reduction and type. The file that includes
// this defines the loops of SINGLES, DOUBLES, FLOAT16, BFLOAT16 and INTEGERS around an operation, and the operations,
// OP(X, A) for A = A op X: of floats with an F, of integers, and for minimum and maximum of signed and unsigned ones.
// Elements have 8 (B), 16 (H), 32 (S) or 64 (D) bits; 16-bit floats are float32 here. A set may lack MUL_D.

TEXT sumFloat32<>(SB), NOSPLIT|NOFRAME, $0
	SINGLES(FADD_S)

TEXT sumFloat64<>(SB), NOSPLIT|NOFRAME, $0
	DOUBLES(FADD_D)

TEXT sumFloat16<>(SB), NOSPLIT|NOFRAME, $0
	FLOAT16(FADD_S)

TEXT sumBFloat16<>(SB), NOSPLIT|NOFRAME, $0
	BFLOAT16(FADD_S)

TEXT minFloat32<>(SB), NOSPLIT|NOFRAME, $0
	SINGLES(FMIN_S)

TEXT minFloat64<>(SB), NOSPLIT|NOFRAME, $0
	DOUBLES(FMIN_D)

TEXT minFloat16<>(SB), NOSPLIT|NOFRAME, $0
	FLOAT16(FMIN_S)

TEXT minBFloat16<>(SB), NOSPLIT|NOFRAME, $0
	BFLOAT16(FMIN_S)

TEXT maxFloat32<>(SB), NOSPLIT|NOFRAME, $0
	SINGLES(FMAX_S)

TEXT maxFloat64<>(SB), NOSPLIT|NOFRAME, $0
	DOUBLES(FMAX_D)

TEXT maxFloat16<>(SB), NOSPLIT|NOFRAME, $0
	FLOAT16(FMAX_S)

TEXT maxBFloat16<>(SB), NOSPLIT|NOFRAME, $0
	BFLOAT16(FMAX_S)

TEXT productFloat32<>(SB), NOSPLIT|NOFRAME, $0
	SINGLES(FMUL_S)

TEXT productFloat64<>(SB), NOSPLIT|NOFRAME, $0
	DOUBLES(FMUL_D)

TEXT productFloat16<>(SB), NOSPLIT|NOFRAME, $0
	FLOAT16(FMUL_S)

TEXT productBFloat16<>(SB), NOSPLIT|NOFRAME, $0
	BFLOAT16(FMUL_S)

TEXT sum8<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(ADD_B)

TEXT sum16<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(ADD_H)

TEXT sum32<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(ADD_S)

TEXT sum64<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(ADD_D)

TEXT product8<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(MUL_B)

TEXT product16<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(MUL_H)

TEXT product32<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(MUL_S)

#ifdef MUL_D
TEXT product64<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(MUL_D)
#endif

TEXT minUint8<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(UMIN_B)

TEXT minInt8<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(SMIN_B)

TEXT minUint16<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(UMIN_H)

TEXT minInt16<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(SMIN_H)

TEXT minUint32<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(UMIN_S)

TEXT minInt32<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(SMIN_S)

TEXT minUint64<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(UMIN_D)

TEXT minInt64<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(SMIN_D)

TEXT maxUint8<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(UMAX_B)

TEXT maxInt8<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(SMAX_B)

TEXT maxUint16<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(UMAX_H)

TEXT maxInt16<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(SMAX_H)

TEXT maxUint32<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(UMAX_S)

TEXT maxInt32<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(SMAX_S)

TEXT maxUint64<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(UMAX_D)

TEXT maxInt64<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(SMAX_D)

TEXT and<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(AND)

TEXT or<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(OR)

TEXT xor<>(SB), NOSPLIT|NOFRAME, $0
	INTEGERS(XOR)

// DATA wants the entries in the order of the numbers of reductions and types.
#define AT(OP, TYPE, NAME) DATA loops<>+((OP)*const_rowOfLoops+(TYPE))*8(SB)/8, $NAME(SB)
#define TO_32_BITS(OP, U8, I8, U16, I16, U32, I32) \
	AT(OP, const_Uint8, U8);   AT(OP, const_Int8, I8);   AT(OP, const_Uint16, U16); \
	AT(OP, const_Int16, I16);  AT(OP, const_Uint32, U32); AT(OP, const_Int32, I32)
#define OF_64_BITS(OP, U64, I64) \
	AT(OP, const_Uint64, U64); AT(OP, const_Int64, I64)
#define OF_FLOATS(OP, F16, BF16, F32, F64) \
	AT(OP, const_Float16, F16); AT(OP, const_BFloat16, BF16); AT(OP, const_Float32, F32); AT(OP, const_Float64, F64)

TO_32_BITS(const_Sum, sum8<>, sum8<>, sum16<>, sum16<>, sum32<>, sum32<>)
OF_64_BITS(const_Sum, sum64<>, sum64<>)
OF_FLOATS(const_Sum, sumFloat16<>, sumBFloat16<>, sumFloat32<>, sumFloat64<>)
TO_32_BITS(const_Min, minUint8<>, minInt8<>, minUint16<>, minInt16<>, minUint32<>, minInt32<>)
OF_64_BITS(const_Min, minUint64<>, minInt64<>)
OF_FLOATS(const_Min, minFloat16<>, minBFloat16<>, minFloat32<>, minFloat64<>)
TO_32_BITS(const_Max, maxUint8<>, maxInt8<>, maxUint16<>, maxInt16<>, maxUint32<>, maxInt32<>)
OF_64_BITS(const_Max, maxUint64<>, maxInt64<>)
OF_FLOATS(const_Max, maxFloat16<>, maxBFloat16<>, maxFloat32<>, maxFloat64<>)
TO_32_BITS(const_Product, product8<>, product8<>, product16<>, product16<>, product32<>, product32<>)
#ifdef MUL_D
OF_64_BITS(const_Product, product64<>, product64<>)
#endif
OF_FLOATS(const_Product, productFloat16<>, productBFloat16<>, productFloat32<>, productFloat64<>)
TO_32_BITS(const_BitAnd, and<>, and<>, and<>, and<>, and<>, and<>)
OF_64_BITS(const_BitAnd, and<>, and<>)
TO_32_BITS(const_BitOr, or<>, or<>, or<>, or<>, or<>, or<>)
OF_64_BITS(const_BitOr, or<>, or<>)
TO_32_BITS(const_BitXor, xor<>, xor<>, xor<>, xor<>, xor<>, xor<>)
OF_64_BITS(const_BitXor, xor<>, xor<>)
GLOBL loops<>(SB), RODATA|NOPTR, $const_sizeOfLoops
