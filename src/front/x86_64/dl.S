/* The wrappers of the loader's functions. Each asks its C half in dl.c, and then *jumps* to the next
 * definition (the libc's, or another interposer's) with the caller's return address on top of the
 * stack. The loader finds the caller by that address: its RPATH, $ORIGIN, namespace, and the library
 * that RTLD_NEXT comes after. At each entry the stack is 8 off its alignment. */
	.section .note.GNU-stack, "", @progbits
	.text

	.macro WRAPPER name
	.globl \name
	.type \name, @function
	.balign 16
\name:
	.endm

/* void *dlopen(const char *name, int flags) */
WRAPPER dlopen
	push %rsi
	push %rdi
	sub $8, %rsp
	mov 24(%rsp), %rsi
	call dl_open_name
	add $16, %rsp
	pop %rsi
	mov %rax, %rdi
	jmp *dl_true_dlopen(%rip)
	.size dlopen, . - dlopen

/* void *dlmopen(Lmid_t space, const char *name, int flags) */
WRAPPER dlmopen
	push %rdx
	push %rdi
	sub $8, %rsp
	mov %rsi, %rdi
	mov 24(%rsp), %rsi
	call dl_open_name
	add $8, %rsp
	pop %rdi
	pop %rdx
	mov %rax, %rsi
	jmp *dl_true_dlmopen(%rip)
	.size dlmopen, . - dlmopen

/* void *dlsym(void *handle, const char *name): dl_symbol() may answer, or put another handle in
 * place of the caller's. */
WRAPPER dlsym
	push %rsi
	push %rdi
	sub $8, %rsp
	lea 8(%rsp), %rdi
	xor %edx, %edx
	call dl_symbol
	add $8, %rsp
	pop %rdi
	pop %rsi
	test %rax, %rax
	jnz 1f
	jmp *dl_true_dlsym(%rip)
1:	ret
	.size dlsym, . - dlsym

/* void *dlvsym(void *handle, const char *name, const char *version) */
WRAPPER dlvsym
	push %rdx
	push %rsi
	push %rdi
	mov %rsp, %rdi
	call dl_symbol
	pop %rdi
	pop %rsi
	pop %rdx
	test %rax, %rax
	jnz 1f
	jmp *dl_true_dlvsym(%rip)
1:	ret
	.size dlvsym, . - dlvsym
