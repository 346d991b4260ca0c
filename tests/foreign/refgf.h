/* What a C program needs to be judged by the golden files: reading them, the number formats, and writing results. C99. */
#ifndef REFGF_H
#define REFGF_H

#include <stddef.h>

typedef enum { F64, F32, F16, BF16, I64, U8 } Type;

typedef struct {
    Type type;
    int dims;
    size_t shape[8], count;
    double *values; /* every type above is exact in a double (I64 below 2^53) */
} Tensor;

/* numbers.c */
double round_to(Type type, double x);  /* nearest, ties to even; too large becomes infinity; denormals are kept */
double load_number(Type type, const unsigned char *bytes);
void store_number(Type type, double x, unsigned char *bytes);
size_t size_of(Type type);

/* files.c: what is missing or wrong ends the program with a message */
void fail(const char *what, const char *name);
char *read_file(const char *folder, const char *name, size_t *length);
Tensor load_tensor(const char *data, size_t length, const char *name);
int has_tensor(const char *data, size_t length, const char *name);
int has_key(const char *json, const char *key);
double number_of(const char *json, const char *key, double otherwise);
int is_text(const char *json, const char *key, const char *text);
Type type_of(const char *json, const char *key, Type otherwise); /* "float16", ...; `otherwise` for null */
const char *value_of(const char *json, const char *key);
void *allocate(size_t count, size_t size);
void write_tensors(const char *folder, const char **names, const Tensor *tensors, int count);

/* ring.c: xs[rank] are n numbers each, of `type`; all are replaced by the sum */
void slice_bounds(size_t n, int p, int slice, size_t *start, size_t *stop);
void ring_allreduce(double **xs, int p, size_t n, Type type, Type wire);
void direct_allreduce(double **xs, int p, size_t n, Type type, Type wire);

/* csc.c */
void csc_run(const char *json, const char *data, size_t length, const char *out);

#endif
