/* The spellings of sizes, fractions and shares that users write (docs/man/carve.1). Decimal
 * arithmetic is exact (no floating point): 2684.35456MB is 2684354560 bytes. A fraction of a byte
 * is dropped.
 *
 * Every function returns 0, or a negative number with *err saying which text was wrong and which
 * would be right (code EXIT_CODE_USAGE). -ERANGE: the size is below the smallest slice. Outputs are
 * set on success only. Thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

/* The smallest slice, in bytes: 100 MB (docs/man/carve.1). */
#define SLICE_BYTES_MIN 100000000ULL
/* No GPU is larger: sizes above it are refused as overflow (bytes; 2^47 = 128 TiB, also what the
 * ledger's word can count). */
#define SLICE_BYTES_MAX (1ULL << 47)
/* Fractions and shares are counted in millionths: 0.25 = 250000. */
#define SHARE_ONE 1000000u
/* Digits that JSON has them with: 0.05, not 0.050000000000000003. */
#define SHARE_DIGITS 9
/* The smallest fraction that is accepted: 0.001 of a GPU (docs/man/carve.1). */
#define SHARE_MIN 1000u

/* --vram and SIZE: a bare number is GiB. The units are B, KB MB GB TB (powers of 1000) and KiB MiB
 * GiB TiB (of 1024). Letters are in any case, and the last B may be missing: 4G is 4gb, 4Gi is
 * 4GiB. */
int units_parse_size(const char *text, const char *option, uint64_t *ret_bytes, struct error *err);
/* The same of any amount, no slice's: 64MiB. */
int units_parse_amount(const char *text, const char *option, uint64_t *ret_bytes,
		       struct error *err);
int units_parse_vram(const char *text, uint64_t *ret_bytes, struct error *err);
/* Whether a request for `bytes` may have meant as many MiB as those are GiB. True: it is more than
 * any GPU and than `capacity` (bytes), where so many MiB are not. */
bool units_mebibytes_meant(uint64_t bytes, uint64_t capacity);
/* How the hint of such a size begins. It is for sizes that were written without a unit. */
#define UNITS_BARE_HINT "a size without a unit is GiB"
bool units_is_bare(const char *text);
/* --gpu-memory: a quantity as Kubernetes writes it, with k M G T (powers of 1000), Ki Mi Gi Ti (of
 * 1024), or the units of --vram. A bare number is refused, and so is `m`, which is a thousandth
 * there. */
int units_parse_gpu_memory(const char *text, uint64_t *ret_bytes, struct error *err);
/* --gpu: 0 < F < 1 gives *ret_share (millionths) and *ret_whole 0; a whole number >= 1 gives
 * *ret_share SHARE_ONE and *ret_whole that number; 1.25 is refused. */
int units_parse_gpu(const char *text, uint32_t *ret_share, uint32_t *ret_whole, struct error *err);
/* --gpu-compute: "25%" or "0.25" -> 250000. 0 < share <= 1. */
int units_parse_share(const char *text, const char *option, uint32_t *ret_share, struct error *err);
/* The same between bounds, in millionths; `right` is an example of what is. */
struct units_part {
	uint32_t least, most;
	const char *right;
};
int units_parse_part(const char *text, const char *option, const struct units_part *bounds,
		     uint32_t *ret_part, struct error *err);
/* Seconds ("1.5"), or a time with units (us, ms, s, m, h, d; "90s", "1h30m"), 0 <= s <= 1e9, to
 * nanoseconds. */
int units_parse_seconds(const char *text, const char *option, uint64_t *ret_ns, struct error *err);
/* A short time with its unit, "250ms", "0.25s", "5000us", in [min, max], to nanoseconds. */
int units_parse_duration(const char *text, const char *option, uint64_t min_ns, uint64_t max_ns,
			 uint64_t *ret_ns, struct error *err);
/* Whole number in [min, max]. */
int units_parse_count(const char *text, const char *option, uint64_t min, uint64_t max,
		      uint64_t *ret, struct error *err);

/* For people: "4 GiB", "3.73 GiB", "512 MiB", "12 B". Rounded up: what is taken, held or asked for
 * is not shown as less than it is. A size that was typed with two decimals is shown as it was.
 * Returns buf. */
#define UNITS_TEXT_SIZE 48
const char *units_format_bytes(uint64_t bytes, char buf[static UNITS_TEXT_SIZE]);
/* Likewise what can be had, rounded down: so much of it there is. */
const char *units_format_room(uint64_t bytes, char buf[static UNITS_TEXT_SIZE]);
/* "1 GPU", "2 GPUs"; "1 process", "0 processes". */
const char *units_format_count(uint64_t count, const char *one, char buf[static UNITS_TEXT_SIZE]);
/* Likewise "250 ms", "1.5 s", "0 s"; three digits that count. */
const char *units_format_duration(uint64_t ns, char buf[static UNITS_TEXT_SIZE]);
/* A duration as units_format_duration() writes it, and from 1000 s on "16.7 min", "17.5 h", "3 d".
 */
const char *units_format_rough_duration(uint64_t ns, char buf[static UNITS_TEXT_SIZE]);
/* "8h", "1h30m", "90ms", "0s": all of it, as an option takes it; less than 1 us is left out. */
const char *units_format_exact_duration(uint64_t ns, char buf[static UNITS_TEXT_SIZE]);
/* ns since 1970 as RFC 3339 has it, in UTC, rounded down to so many digits of a second:
 * "2026-11-30T08:00:00.000Z". Returns buf. Any thread. */
enum units_precision { UNITS_SECONDS = 0, UNITS_MILLISECONDS = 3, UNITS_MICROSECONDS = 6 };
const char *units_format_time(int64_t ns, enum units_precision precision,
			      char buf[static UNITS_TEXT_SIZE]);
