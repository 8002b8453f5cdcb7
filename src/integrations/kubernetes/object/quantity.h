/* Quantities as Kubernetes writes them: "10Gi", "4G", "500m", "1e3". Pure. */
#pragma once

#include <stdint.h>

/* In whole units, rounded up. 0, or -EINVAL where it is none, is negative, or is beyond 2^63. */
int quantity_parse(const char *text, uint64_t *ret);

/* Bytes as a quantity: whole mebibytes as "10Mi", else plain. Returns buf. */
#define QUANTITY_TEXT_SIZE 24
const char *quantity_format_bytes(uint64_t bytes, char buf[static QUANTITY_TEXT_SIZE]);
