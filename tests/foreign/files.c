/* case.json and .safetensors: just enough of JSON to find a key and read what follows it. */
#include "refgf.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *TYPE_NAMES[] = {[F64] = "F64", [F32] = "F32", [F16] = "F16",
                                   [BF16] = "BF16", [I64] = "I64", [U8] = "U8"};

void fail(const char *what, const char *name)
{
    fprintf(stderr, "%s: %s\n", what, name);
    exit(1);
}

void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        fail("no memory", "");
    return memory;
}

char *read_file(const char *folder, const char *name, size_t *length)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        fail("cannot read", path);
    long size = ftell(file);
    rewind(file);
    char *data = allocate((size_t)size + 1, 1); /* ends with 0 */
    if (fread(data, 1, (size_t)size, file) != (size_t)size)
        fail("cannot read all of", path);
    fclose(file);
    *length = (size_t)size;
    return data;
}

/* What follows "key": in a JSON text, or NULL. */
const char *value_of(const char *json, const char *key)
{
    char quoted[128];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(json, quoted);
    if (!at)
        return NULL;
    for (at += strlen(quoted); isspace((unsigned char)*at); at++)
        ;
    return at;
}

int has_key(const char *json, const char *key)
{
    const char *at = value_of(json, key);
    return at && strncmp(at, "null", 4) != 0;
}

double number_of(const char *json, const char *key, double otherwise)
{
    return has_key(json, key) ? strtod(value_of(json, key), NULL) : otherwise;
}

int is_text(const char *json, const char *key, const char *text)
{
    const char *at = value_of(json, key);
    return at && at[0] == '"' && !strncmp(at + 1, text, strlen(text)) && at[1 + strlen(text)] == '"';
}

Type type_of(const char *json, const char *key, Type otherwise)
{
    return is_text(json, key, "float64") ? F64 : is_text(json, key, "float32") ? F32
         : is_text(json, key, "float16") ? F16 : is_text(json, key, "bfloat16") ? BF16 : otherwise;
}

/* The header's entry of a tensor, as a text of its own. */
static char *entry_of(const char *data, size_t length, const char *name, size_t *numbers)
{
    uint64_t header;
    memcpy(&header, data, 8);
    if (length < 8 || header > length - 8)
        fail("not a safetensors file", name);
    char *text = allocate(header + 1, 1);
    memcpy(text, data + 8, header);
    *numbers = 8 + header;
    const char *entry = value_of(text, name);
    size_t size = entry ? strcspn(entry, "}") : 0;
    memmove(text, entry ? entry : text, size);
    text[size] = 0;
    return text;
}

int has_tensor(const char *data, size_t length, const char *name)
{
    size_t numbers;
    char *entry = entry_of(data, length, name, &numbers);
    int found = entry[0] != 0;
    free(entry);
    return found;
}

Tensor load_tensor(const char *data, size_t length, const char *name)
{
    Tensor t = {.count = 1};
    size_t start;
    char *entry = entry_of(data, length, name, &start), *at;
    if (!entry[0])
        fail("no such tensor", name);
    for (t.type = F64; t.type <= U8 && !is_text(entry, "dtype", TYPE_NAMES[t.type]); t.type++)
        ;
    if (t.type > U8)
        fail("unknown dtype", name);
    at = (char *)value_of(entry, "shape") + 1;
    while (*at != ']' && t.dims < 8) {
        t.shape[t.dims] = strtoul(at, &at, 10);
        t.count *= t.shape[t.dims++];
        at += *at == ',';
    }
    start += strtoul(value_of(entry, "data_offsets") + 1, NULL, 10);
    if (start + t.count * size_of(t.type) > length)
        fail("lies outside the file", name);
    t.values = allocate(t.count, sizeof *t.values);
    for (size_t i = 0; i < t.count; i++)
        t.values[i] = load_number(t.type, (const unsigned char *)data + start + i * size_of(t.type));
    free(entry);
    return t;
}

void write_tensors(const char *folder, const char **names, const Tensor *tensors, int count)
{
    char path[4096], *header = allocate(256 * (size_t)count + 16, 1), *end = header;
    uint64_t position = 0, length;
    end += sprintf(end, "{");
    for (int k = 0; k < count; k++) {
        const char *type = TYPE_NAMES[tensors[k].type];
        end += sprintf(end, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", k ? "," : "", names[k], type);
        for (int d = 0; d < tensors[k].dims; d++)
            end += sprintf(end, "%s%zu", d ? "," : "", tensors[k].shape[d]);
        end += sprintf(end, "],\"data_offsets\":[%llu,", (unsigned long long)position);
        position += tensors[k].count * size_of(tensors[k].type);
        end += sprintf(end, "%llu]}", (unsigned long long)position);
    }
    end += sprintf(end, "}");
    length = (uint64_t)(end - header);
    snprintf(path, sizeof path, "%s/result.safetensors", folder);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(&length, 8, 1, file) != 1 || fwrite(header, 1, length, file) != length)
        fail("cannot write", path);
    for (int k = 0; k < count; k++)
        for (size_t i = 0; i < tensors[k].count; i++) {
            unsigned char bytes[8];
            store_number(tensors[k].type, tensors[k].values[i], bytes);
            if (fwrite(bytes, size_of(tensors[k].type), 1, file) != 1)
                fail("cannot write", path);
        }
    if (fclose(file))
        fail("cannot write", path);
    free(header);
}
