/* What a candidate's host half finds where it calls through a pointer: a kernel is called, all else
   ends the process.

   `kernel<<<...>>>` through a variable is a call of the address in it. GCC is told to make each such
   call by a function for its register, and these are the functions: the stand-in runtime is asked
   first whether the address is a kernel's (registration.c). No register changes. host_flow.py knows
   every instruction here; nothing else may go to an address that is computed. */

#define HIDDEN(name) ".globl " name "\n.hidden " name "\n.type " name ", @function\n" name ":\n"
#define CALL_THROUGH(register)                                                                      \
    HIDDEN("__x86_indirect_thunk_" #register)                                                       \
    "push %" #register "\ncall kb_only_kernels\npop %" #register "\njmp *%" #register "\n"

__asm__(
    ".text\n"
    HIDDEN("kb_only_kernels")
    "push %rax\npush %rcx\npush %rdx\npush %rsi\npush %rdi\n"
    "push %r8\npush %r9\npush %r10\npush %r11\nsub $0x80, %rsp\n"
    "movups %xmm0, (%rsp)\nmovups %xmm1, 0x10(%rsp)\nmovups %xmm2, 0x20(%rsp)\n"
    "movups %xmm3, 0x30(%rsp)\nmovups %xmm4, 0x40(%rsp)\nmovups %xmm5, 0x50(%rsp)\n"
    "movups %xmm6, 0x60(%rsp)\nmovups %xmm7, 0x70(%rsp)\n"
    "mov 0xd0(%rsp), %rdi\ncall kb_require_kernel@PLT\n"
    "movups (%rsp), %xmm0\nmovups 0x10(%rsp), %xmm1\nmovups 0x20(%rsp), %xmm2\n"
    "movups 0x30(%rsp), %xmm3\nmovups 0x40(%rsp), %xmm4\nmovups 0x50(%rsp), %xmm5\n"
    "movups 0x60(%rsp), %xmm6\nmovups 0x70(%rsp), %xmm7\nadd $0x80, %rsp\n"
    "pop %r11\npop %r10\npop %r9\npop %r8\n"
    "pop %rdi\npop %rsi\npop %rdx\npop %rcx\npop %rax\nret\n"
    CALL_THROUGH(rax) CALL_THROUGH(rbx) CALL_THROUGH(rcx) CALL_THROUGH(rdx) CALL_THROUGH(rsi)
    CALL_THROUGH(rdi) CALL_THROUGH(rbp) CALL_THROUGH(r8) CALL_THROUGH(r9) CALL_THROUGH(r10)
    CALL_THROUGH(r11) CALL_THROUGH(r12) CALL_THROUGH(r13) CALL_THROUGH(r14) CALL_THROUGH(r15));
