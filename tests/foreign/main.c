/* ./prog CASE OUT: compute the case in the folder CASE, write OUT/result.safetensors. Exit code 77: not implemented. */
#include "refgf.h"

#include <stdio.h>

int main(int count, char **arguments)
{
    size_t length, unused;
    if (count != 3)
        fail("wanted two folders", "CASE OUT");
    char *json = read_file(arguments[1], "case.json", &unused);
    char *data = read_file(arguments[1], "inputs.safetensors", &length);
    int ring = is_text(json, "function", "ring_allreduce"), direct = is_text(json, "function", "direct_allreduce");
    if (is_text(json, "function", "csc_run") && !has_key(json, "trust")) {
        csc_run(json, data, length, arguments[2]);
        return 0;
    }
    if (!ring && !direct)
        return 77;
    Tensor x = load_tensor(data, length, "in.x");
    size_t p = x.shape[0], n = x.shape[1];
    Type type = x.type == BF16 ? F32 : x.type; /* bfloat16 sums are formed in float32, and rounded at every hop */
    double **xs = allocate(p, sizeof *xs);
    for (size_t r = 0; r < p; r++)
        xs[r] = x.values + r * n;
    (ring ? ring_allreduce : direct_allreduce)(xs, (int)p, n, type, type_of(json, "wire", x.type));
    const char *name = "out.x";
    write_tensors(arguments[2], &name, &x, 1);
    return 0;
}
