/* Statements R1 to R3, and D1, D2, for p ranks in one process: rank after rank does what a message would make it do. */
#include "refgf.h"

#include <stdlib.h>
#include <string.h>

/* R1: the first n mod p slices are one element longer. */
void slice_bounds(size_t n, int p, int slice, size_t *start, size_t *stop)
{
    size_t each = n / (size_t)p, longer = n % (size_t)p, s = (size_t)slice;
    *start = s * each + (s < longer ? s : longer);
    *stop = *start + each + (s < longer);
}

static int modulo(int a, int p)
{
    return ((a % p) + p) % p;
}

/* p-1 steps: rank r sends slice r-t, rounded to the wire type, to the right, which adds. Rank r then owns slice r+1. */
void ring_allreduce(double **xs, int p, size_t n, Type type, Type wire)
{
    size_t start, stop;
    double *message = allocate(n, sizeof *message);
    for (int t = 0; t < p - 1; t++)
        for (int r = 0; r < p; r++) { /* r+1 adds slice r-t, which nobody else touches in this step */
            int right = modulo(r + 1, p);
            slice_bounds(n, p, modulo(r - t, p), &start, &stop);
            for (size_t i = start; i < stop; i++)
                message[i] = round_to(wire, xs[r][i]);
            for (size_t i = start; i < stop; i++)
                xs[right][i] = round_to(type, xs[right][i] + message[i]);
        }
    for (int r = 0; r < p; r++) { /* the owner rounds its finished slice, and everybody gets it */
        slice_bounds(n, p, modulo(r + 1, p), &start, &stop);
        for (size_t i = start; i < stop; i++)
            message[i] = round_to(wire, xs[r][i]);
    }
    for (int r = 0; r < p; r++)
        if (n)
            memcpy(xs[r], message, n * sizeof *message);
    free(message);
}

/* A fold over ranks 0, 1, ..., p-1; inputs and the result are rounded to the wire type. */
void direct_allreduce(double **xs, int p, size_t n, Type type, Type wire)
{
    for (size_t i = 0; i < n; i++) {
        double total = round_to(wire, xs[0][i]);
        for (int r = 1; r < p; r++)
            total = round_to(type, total + round_to(wire, xs[r][i]));
        for (int r = 0; r < p; r++)
            xs[r][i] = round_to(wire, total);
    }
}
