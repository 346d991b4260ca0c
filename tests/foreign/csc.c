/* Statements C1 to C12 for p ranks in one process, float32. */
#include "refgf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int dgc, masked, history, after, ring, p;
    size_t n, chunk, chunks, tensors;
    double rate, momentum, decay, theta_bytes;
    Type wire;
    Tensor sizes, decayed; /* decayed.values is NULL where all are */
} Settings;

typedef struct {
    double *w, *velocity, *u, *v; /* v is h where there is no u; u, v, a: p rows of n */
    double *a, **packed;          /* what would travel, and what does */
    double *importance, *gap, scale;
    long good, interval;
    int *decayed, all; /* all: a dense step, nobody has chosen */
    unsigned char *chosen;
} State;

static double f32(double x) { return round_to(F32, x); }

static size_t length_of(const Settings *s, size_t chunk)
{
    size_t start = chunk * s->chunk;
    return s->n - start < s->chunk ? s->n - start : s->chunk;
}

static int *elements_decayed(const Settings *s)
{
    int *flags = allocate(s->n, sizeof *flags);
    size_t i = 0;
    for (size_t t = 0; t < s->tensors; t++)
        for (size_t k = 0; k < (size_t)s->sizes.values[t]; k++)
            flags[i++] = s->decay != 0 && (!s->decayed.values || s->decayed.values[t] != 0);
    return flags;
}

/* C5: the max(1, ceil(C percent / 100)) most important, ties to the lower number. */
static void choose(const double *importance, size_t chunks, double percent, unsigned char *chosen)
{
    size_t count = (size_t)ceil((double)chunks * percent / 100);
    memset(chosen, 0, chunks);
    for (size_t k = 0; k < (count > 1 ? count : 1); k++) {
        size_t best = chunks;
        for (size_t c = 0; c < chunks; c++)
            if (!chosen[c] && (best == chunks || importance[c] > importance[best]))
                best = c;
        chosen[best] = 1;
    }
}

/* C9, P4: packed chunks (tensors in a dense step) wait until their bytes exceed theta; the wire gets scaled values. */
static void exchange(const Settings *s, double **packed, const size_t *sizes, size_t parts, double scale)
{
    size_t start = 0, stop = 0, bytes = size_of(s->wire);
    double **views = allocate((size_t)s->p, sizeof *views);
    for (size_t k = 0; k <= parts; k++) {
        if (k < parts)
            stop += sizes[k];
        if (k < parts ? (double)((stop - start) * bytes) > s->theta_bytes : stop > start) {
            for (int r = 0; r < s->p; r++) {
                views[r] = packed[r] + start;
                for (size_t i = 0; i < stop - start; i++)
                    views[r][i] = f32(views[r][i] * scale);
            }
            (s->ring ? ring_allreduce : direct_allreduce)(views, s->p, stop - start, F32, s->wire);
            for (size_t i = 0; i < stop - start; i++)
                views[0][i] = f32(views[0][i] / scale);
            start = stop;
        }
    }
    free(views);
}

static Settings settings(const char *json, const char *data, size_t length, size_t n, int p)
{
    Settings s = {.p = p, .n = n, .chunk = (size_t)number_of(json, "chunk", 32768)};
    s.dgc = is_text(json, "form", "dgc") || is_text(json, "form", "dgc_masked");
    s.masked = is_text(json, "form", "dgc_masked");
    s.history = is_text(json, "form", "history");
    s.after = has_key(json, "after") && !strncmp(value_of(json, "after"), "true", 4);
    s.ring = is_text(json, "order", "ring");
    s.rate = f32(number_of(json, "rate", 0.1));
    s.momentum = f32(number_of(json, "momentum", 0.9));
    s.decay = number_of(json, "decay", 0);
    s.theta_bytes = is_text(json, "theta_bytes", "inf") ? INFINITY : number_of(json, "theta_bytes", INFINITY);
    s.wire = type_of(json, "wire", F32);
    s.chunks = (n + s.chunk - 1) / s.chunk;
    s.sizes = load_tensor(data, length, "in.sizes");
    s.tensors = s.sizes.count;
    if (has_tensor(data, length, "in.decayed"))
        s.decayed = load_tensor(data, length, "in.decayed");
    return s;
}

/* Percent and "dense" of each step, from [[30, true], [30, false], ...]. */
static void read_percents(const char *json, size_t steps, double *percents, int *dense)
{
    char *at = strchr(value_of(json, "percents"), '[') + 1;
    for (size_t t = 0; t <= steps; t++) {
        percents[t] = strtod(strchr(at, '[') + 1, &at);
        at += strspn(at, ", \n");
        dense[t] = *at == 't';
        at = strchr(at, ']') + 1;
    }
}

static State start(const Settings *s, const char *json, double *w)
{
    size_t p = (size_t)s->p, n = s->n;
    State q = {.w = w, .all = 1, .scale = number_of(json, "scale", 1), .decayed = elements_decayed(s)};
    q.interval = (long)number_of(json, "scale_interval", 2000);
    q.velocity = allocate(n, sizeof *q.velocity);
    q.u = allocate(p * n, sizeof *q.u);
    q.v = allocate(p * n, sizeof *q.v);
    q.a = allocate(p * n, sizeof *q.a);
    q.packed = allocate(p, sizeof *q.packed);
    q.importance = allocate(s->chunks, sizeof *q.importance);
    q.gap = allocate(s->chunks, sizeof *q.gap);
    q.chosen = allocate(s->chunks, 1);
    for (size_t c = 0; c < s->chunks; c++)
        q.gap[c] = 1;
    for (size_t r = 0; r < p; r++)
        q.packed[r] = allocate(n, sizeof **q.packed);
    return q;
}

/* C12, C2: what each rank would send; g (p rows of n) gets dgc's decay. Is all of it finite? */
static int carry(const Settings *s, State *q, double *g)
{
    int finite = 1;
    double share = f32(s->decay / s->p);
    for (size_t r = 0; r < (size_t)s->p; r++)
        for (size_t i = 0, j = r * s->n; i < s->n; i++, j++) {
            if (s->dgc && q->decayed[i])
                g[j] = f32(g[j] + f32(share * q->w[i]));
            q->a[j] = s->dgc ? f32(q->v[j] + f32(f32(s->momentum * q->u[j]) + g[j])) : f32(g[j] + q->v[j]);
            finite = finite && isfinite(q->a[j]);
        }
    return finite;
}

/* C9: pack the chosen chunks and sum them over the ranks. Is all finite, on the wire (C10) and in sum? */
static int pack_and_exchange(const Settings *s, State *q)
{
    int finite = 1;
    size_t parts = 0, k = 0, *sizes = allocate(s->chunks + s->tensors, sizeof *sizes);
    for (size_t c = 0; c < s->chunks; c++)
        if (q->all || q->chosen[c]) {
            for (size_t i = 0; i < length_of(s, c); i++, k++)
                for (size_t r = 0; r < (size_t)s->p; r++) {
                    q->packed[r][k] = q->a[r * s->n + c * s->chunk + i];
                    finite = finite && isfinite(round_to(s->wire, f32(q->packed[r][k] * q->scale)));
                }
            sizes[parts++] = length_of(s, c);
        }
    if (q->all)
        for (parts = 0; parts < s->tensors; parts++)
            sizes[parts] = (size_t)s->sizes.values[parts];
    exchange(s, q->packed, sizes, parts, q->scale);
    free(sizes);
    for (size_t i = 0; i < k; i++)
        finite = finite && isfinite(q->packed[0][i]);
    return finite;
}

/* C3 and the norm of C4 for element i. */
static double keep(const Settings *s, State *q, const double *g, size_t i, int sent)
{
    double norm = 0;
    for (size_t r = 0, j = i; r < (size_t)s->p; r++, j += s->n) {
        q->u[j] = s->dgc ? f32(f32(s->momentum * q->u[j]) + g[j]) : 0;
        if (sent && s->masked && !q->all)
            q->u[j] = 0;
        q->v[j] = sent ? 0 : s->history ? f32(s->momentum * q->a[j]) : q->a[j];
        norm += fabs(s->after ? q->v[j] : q->a[j]);
    }
    return norm;
}

/* C11, C12 for element i of a chunk that travelled. */
static void update(const Settings *s, State *q, size_t i, double total, double gap)
{
    if (!s->dgc && q->decayed[i])
        total = f32(total + f32(f32(s->decay * gap) * q->w[i]));
    if (!s->dgc)
        total = q->velocity[i] = f32(f32(s->momentum * q->velocity[i]) + total);
    q->w[i] = f32(q->w[i] - f32(s->rate * total));
}

/* A step that counts: keep, update, choose, and P6. */
static void accept(const Settings *s, State *q, const double *g, double percent_next, int dense_next)
{
    size_t k = 0;
    for (size_t c = 0; c < s->chunks; c++) {
        int sent = q->all || q->chosen[c];
        q->importance[c] = 0;
        for (size_t i = c * s->chunk; i < c * s->chunk + length_of(s, c); i++) {
            q->importance[c] += keep(s, q, g, i, sent);
            if (sent)
                update(s, q, i, q->packed[0][k++], q->gap[c]);
        }
        q->importance[c] /= (double)length_of(s, c);
        q->gap[c] = sent ? 1 : q->gap[c] + 1;
    }
    q->all = dense_next;
    if (!q->all)
        choose(q->importance, s->chunks, percent_next, q->chosen);
    if (++q->good == q->interval) {
        q->scale = fmin(q->scale * 2, 16777216);
        q->good = 0;
    }
}

static Tensor result(Type type, int dims, size_t a, size_t b, size_t c)
{
    Tensor t = {.type = type, .dims = dims, .shape = {a, b, c}, .count = a * (dims > 1 ? b : 1) * (dims > 2 ? c : 1)};
    t.values = allocate(t.count, sizeof *t.values);
    return t;
}

void csc_run(const char *json, const char *data, size_t length, const char *out)
{
    Tensor w = load_tensor(data, length, "in.w"), g = load_tensor(data, length, "in.g");
    size_t steps = g.shape[0], p = g.shape[1], n = w.count;
    Settings s = settings(json, data, length, n, (int)p);
    State q = start(&s, json, w.values);
    double *percents = allocate(steps + 1, sizeof *percents);
    int *dense = allocate(steps + 1, sizeof *dense);
    const char *names[] = {"out.w", "out.chosen", "out.scale", "out.finite", s.dgc ? "out.v" : "out.h", "out.u"};
    Tensor results[] = {result(F32, 3, steps, p, n), result(U8, 3, steps, p, s.chunks), result(F64, 1, steps, 0, 0),
                        result(U8, 1, steps, 0, 0), result(F32, 3, steps, p, n), result(F32, 3, steps, p, n)};
    read_percents(json, steps, percents, dense);
    for (size_t t = 0; t < steps; t++) {
        double *step_g = g.values + t * p * n;
        for (size_t r = 0; r < p; r++)
            for (size_t c = 0; c < s.chunks; c++)
                results[1].values[(t * p + r) * s.chunks + c] = q.all || q.chosen[c];
        int finite = carry(&s, &q, step_g);
        finite = pack_and_exchange(&s, &q) && finite;
        if (finite) {
            accept(&s, &q, step_g, percents[t + 1], dense[t + 1]);
        } else { /* C10, P6: only the scale changes */
            q.scale = fmax(q.scale / 2, 1);
            q.good = 0;
        }
        results[2].values[t] = q.scale;
        results[3].values[t] = finite;
        for (size_t r = 0; r < p; r++)
            memcpy(&results[0].values[(t * p + r) * n], q.w, n * sizeof *q.w);
        memcpy(&results[4].values[t * p * n], q.v, p * n * sizeof *q.v);
        memcpy(&results[5].values[t * p * n], q.u, p * n * sizeof *q.u);
    }
    write_tensors(out, names, results, s.dgc ? 6 : 5);
}
