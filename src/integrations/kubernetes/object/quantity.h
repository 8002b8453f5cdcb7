/* Quantities as Kubernetes writes them: "10Gi", "4G", "500m", "1e3". Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* In whole units, rounded up. 0, or -EINVAL where it is none, is negative, or is beyond 2^63. */
int quantity_parse(const char *text, uint64_t *ret);
/* Like quantity_parse(), in units of 10^-decimals_kept. */
int quantity_parse_scaled(const char *text, int decimals_kept, uint64_t *ret);
/* Whether both are quantities and of one value. */
bool quantity_equal(const char *a, const char *b);

/* Bytes as a quantity: whole mebibytes as "10Mi", else plain. Returns buf. */
#define QUANTITY_TEXT_SIZE 24
const char *quantity_format_bytes(uint64_t bytes, char buf[static QUANTITY_TEXT_SIZE]);
