/* What a candidate's host half finds in place of printing errors: nothing is printed, nothing kept.

   Error-check macros name fprintf and stderr, and a header that includes <iostream> leaves an object
   to be constructed. Both are linked to what stands here, and no other library is asked for them. */
#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN void *stderr;

HIDDEN int fprintf(void *stream, const char *format, ...) { return 0; }
HIDDEN int __fprintf_chk(void *stream, int flag, const char *format, ...) { return 0; }
HIDDEN int fputs(const char *text, void *stream) { return 0; }
HIDDEN int fputc(int letter, void *stream) { return letter; }
HIDDEN unsigned long fwrite(const void *data, unsigned long size, unsigned long count, void *stream)
{
    return count;
}
HIDDEN int fflush(void *stream) { return 0; }

/* std::ios_base::Init: constructor and destructor. */
HIDDEN void _ZNSt8ios_base4InitC1Ev(void *self) {}
HIDDEN void _ZNSt8ios_base4InitD1Ev(void *self) {}
/* What GCC 13 and later ask for instead. */
HIDDEN void _ZSt21ios_base_library_initv(void) {}
