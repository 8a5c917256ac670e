// What the loops of all instruction sets have in common. A loop reduces one step of all inputs in
// registers and stores it to all destinations, so every byte is loaded and stored once.
//
//	DI     args          CX  offset in bytes   DX  its end
//	R8/R9  dsts, count   R10/R11 srcs, count   R12 partial, 0 if there is none
//	R13    flags         BX  slice to visit    SI  slices to go     AX  its memory
//
// The parameters are names of macros: LOAD reads the accumulators of one step from AX+CX, FOLD and
// FOLDSCALED combine AX+CX into them, PRE and POST scale them, FINISH makes them what is to be stored,
// STORE and STREAM write them to AX+CX.

// RUN jumps to a loop, if the table has it. The loop returns to the caller.
#define RUN \
	MOVQ  a+0(FP), DI;           \
	MOVQ  loop+8(FP), BX;        \
	LEAQ  loops<>(SB), AX;       \
	MOVQ  (AX)(BX*8), AX;        \
	TESTQ AX, AX;                \
	SETNE ret+16(FP);            \
	JEQ   none;                  \
	JMP   AX;                    \
none:                                \
	RET

#define ARGUMENTS \
	MOVQ args_dsts(DI), R8;      \
	MOVQ args_dsts+8(DI), R9;    \
	MOVQ args_srcs(DI), R10;     \
	MOVQ args_srcs+8(DI), R11;   \
	MOVQ args_partial(DI), R12;  \
	MOVQ args_from(DI), CX;      \
	MOVQ args_to(DI), DX;        \
	MOVQ args_flags(DI), R13

#define NEXT_SLICE \
	MOVQ (BX), AX; \
	ADDQ $24, BX

#define STORES(STORE, STREAM, STEP) \
	MOVQ R8, BX;                 \
	MOVQ R9, SI;                 \
	TESTQ $const_flagNonTemporal, R13; \
	JNZ  stream;                 \
store:                           \
	NEXT_SLICE;                  \
	STORE;                       \
	DECQ SI;                     \
	JNZ  store;                  \
	JMP  stored;                 \
stream:                          \
	NEXT_SLICE;                  \
	STREAM;                      \
	DECQ SI;                     \
	JNZ  stream;                 \
stored:                          \
	ADDQ $STEP, CX;              \
	CMPQ CX, DX;                 \
	JB   step;                   \
	TESTQ $const_flagNonTemporal, R13; \
	JZ   done;                   \
	SFENCE;                      \
done:                            \
	VZEROUPPER;                  \
	RET

#define FLOAT_LOOP(LOAD, PRE, FOLD, FOLDSCALED, POST, FINISH, STORE, STREAM, STEP) \
step:                            \
	MOVQ R10, BX;                \
	MOVQ R11, SI;                \
	TESTQ R12, R12;              \
	JZ   first;                  \
	MOVQ R12, AX;                \
	LOAD;                        \
	JMP  more;                   \
first:                           \
	NEXT_SLICE;                  \
	DECQ SI;                     \
	LOAD;                        \
	TESTQ $const_flagPre, R13;   \
	JZ   more;                   \
	PRE;                         \
more:                            \
	TESTQ SI, SI;                \
	JZ   finish;                 \
fold:                            \
	NEXT_SLICE;                  \
	TESTQ $const_flagPre, R13;   \
	JNZ  scaled;                 \
	FOLD;                        \
	DECQ SI;                     \
	JNZ  fold;                   \
	JMP  finish;                 \
scaled:                          \
	FOLDSCALED;                  \
	DECQ SI;                     \
	JNZ  fold;                   \
finish:                          \
	TESTQ $const_flagPost, R13;  \
	JZ   unscaled;               \
	POST;                        \
unscaled:                        \
	FINISH;                      \
	STORES(STORE, STREAM, STEP)

#define INTEGER_LOOP(LOAD, FOLD, STORE, STREAM, STEP) \
step:                            \
	MOVQ R10, BX;                \
	MOVQ R11, SI;                \
	TESTQ R12, R12;              \
	JZ   first;                  \
	MOVQ R12, AX;                \
	LOAD;                        \
	JMP  more;                   \
first:                           \
	NEXT_SLICE;                  \
	DECQ SI;                     \
	LOAD;                        \
more:                            \
	TESTQ SI, SI;                \
	JZ   finish;                 \
fold:                            \
	NEXT_SLICE;                  \
	FOLD;                        \
	DECQ SI;                     \
	JNZ  fold;                   \
finish:                          \
	STORES(STORE, STREAM, STEP)
