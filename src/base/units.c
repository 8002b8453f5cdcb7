#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/macros.h"

/* A decimal number as written: value = digits / 10^scale. 19 significant digits fit 64 bits. */
struct decimal {
	uint64_t digits;
	unsigned scale;
	const char *rest; /* the text behind the number */
	bool too_long;
};

struct unit {
	const char *suffix;
	uint64_t bytes;
};

#define K 1000ULL
#define KI 1024ULL

/* With or without the B of bytes, in any case of letters: 4G, 4gb, 4Gi and 4GiB each mean one size.
 */
static const struct unit size_units[] = {
	{"B", 1},
	{"K", K},
	{"KB", K},
	{"M", K *K},
	{"MB", K *K},
	{"G", K *K *K},
	{"GB", K *K *K},
	{"T", K *K *K *K},
	{"TB", K *K *K *K},
	{"Ki", KI},
	{"KiB", KI},
	{"Mi", KI *KI},
	{"MiB", KI *KI},
	{"Gi", KI *KI *KI},
	{"GiB", KI *KI *KI},
	{"Ti", KI *KI *KI *KI},
	{"TiB", KI *KI *KI *KI},
};

/* Reads digits with at most one point. False where no digit stands, or none after the point. */
static bool decimal_read(const char *text, struct decimal *out)
{
	const char *p = text;
	bool point = false, digit = false;

	*out = (struct decimal){0};
	for (; (*p >= '0' && *p <= '9') || (*p == '.' && !point); p++) {
		if (*p == '.') {
			point = true;
			digit = false;
			continue;
		}
		digit = true;
		if (out->digits > (UINT64_MAX - 9) / 10) {
			/* Decimals this far down are less than a byte of anything. */
			out->too_long |= !point;
			continue;
		}
		out->digits = out->digits * 10 + (uint64_t)(*p - '0');
		out->scale += point;
	}
	out->rest = p;
	return digit;
}

static uint64_t power_of_ten(unsigned exponent)
{
	uint64_t value = 1;

	while (exponent--)
		value *= 10;
	return value;
}

static const struct unit *unit_find(const struct unit *units, size_t count, const char *suffix)
{
	for (size_t i = 0; i < count; i++)
		if (!strcasecmp(units[i].suffix, suffix))
			return &units[i];
	return NULL;
}

static bool is_not_finite_word(const char *text)
{
	if (*text == '-' || *text == '+')
		text++;
	return !strncasecmp(text, "inf", 3) || !strncasecmp(text, "nan", 3);
}

/* The part that all sizes share: everything that can be wrong before the unit is looked at. */
static int number_check(const char *text, const char *option, const char *right,
			struct decimal *number, struct error *err)
{
	if (!text || !*text || !strcmp(text, "--")) {
		error_set(err, EXIT_CODE_USAGE, "%s: no value given", option);
	} else if (is_not_finite_word(text)) {
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is not a finite number", option, text);
	} else if (*text == '-') {
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is negative", option, text);
	} else if (!decimal_read(text, number)) {
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is not a number", option, text);
	} else if (number->too_long) {
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' has too many digits", option, text);
	} else {
		return 0;
	}
	error_hint(err, "for example: %s %s", option, right);
	return -EXIT_CODE_USAGE;
}

static int bytes_from(const struct decimal *number, uint64_t unit, uint64_t least,
		      const char *option, const char *text, const char *right, uint64_t *ret_bytes,
		      struct error *err)
{
	unsigned __int128 bytes =
		(unsigned __int128)number->digits * unit / power_of_ten(MIN(number->scale, 19u));

	if (number->digits == 0)
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is zero", option, text);
	else if (unit == 1 && number->digits % power_of_ten(MIN(number->scale, 19u)))
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' has a part of a byte", option, text);
	else if (bytes > SLICE_BYTES_MAX)
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is more than any GPU has (128 TiB)",
			  option, text);
	else if (bytes < least)
		error_set(err, EXIT_CODE_USAGE,
			  "%s: '%.64s' is %" PRIu64 " bytes, below the smallest slice of 100 MB",
			  option, text, (uint64_t)bytes);
	else {
		*ret_bytes = (uint64_t)bytes;
		return 0;
	}
	error_hint(err, "for example: %s %s", option, right);
	return number->digits && bytes < least ? -ERANGE : -EXIT_CODE_USAGE;
}

#define RESPELLED_SIZE 32

/* Turns a number with a blank before its unit, or with a decimal comma, into carve's form. False:
 * it is another text. */
static bool respell(const char *text, char buf[static RESPELLED_SIZE], struct decimal *number)
{
	size_t used = 0, commas = 0;
	bool changed = false;

	for (; *text && used < RESPELLED_SIZE - 1; text++) {
		commas += *text == ',';
		changed |= *text == ',' || *text == ' ';
		if (*text != ' ')
			buf[used++] = *text;
		if (*text == ',')
			buf[used - 1] = '.';
	}
	buf[used] = '\0';
	return changed && !*text && commas < 2 && decimal_read(buf, number);
}

static int respelled_refuse(const char *text, const char *option, const char *respelled,
			    struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' has a %s in it", option, text,
		  strchr(text, ',') ? "comma" : "blank");
	error_hint(err, "write %s", respelled);
	return -EXIT_CODE_USAGE;
}

/* A size whose unit is missing or unknown. `bare`: it needs none. */
static int unit_refuse(const char *text, const char *option, const struct decimal *number,
		       const char *right, bool bare, struct error *err)
{
	char respelled[RESPELLED_SIZE];
	struct decimal meant;

	if (respell(text, respelled, &meant) &&
	    (*meant.rest ? unit_find(size_units, ARRAY_SIZE(size_units), meant.rest) != NULL
			 : bare))
		return respelled_refuse(text, option, respelled, err);
	if (!*number->rest)
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' has no unit", option, text);
	else
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' ends in '%.32s', which is no unit",
			  option, text, number->rest);
	if (!*number->rest && number->digits < 1000 && strlen(text) < 8)
		error_hint(err, "write %sG (powers of 1000) or %sGi (powers of 1024)", text, text);
	else if (!*number->rest)
		error_hint(err, "for example: %s %s", option, right);
	else
		error_hint(err,
			   "units are B, KB, MB, GB, TB, KiB, MiB, GiB, TiB; for example: "
			   "%s %s",
			   option, right);
	return -EXIT_CODE_USAGE;
}

static int size_parse(const char *text, uint64_t least, const char *option, uint64_t *ret_bytes,
		      struct error *err)
{
	static const char right[] = "4, 2.5GiB, 2560MiB or 4000MB";
	static const struct unit bare = {"", KI * KI * KI};
	struct decimal number;
	int rc = number_check(text, option, right, &number, err);

	if (rc < 0)
		return rc;
	const struct unit *unit =
		*number.rest ? unit_find(size_units, ARRAY_SIZE(size_units), number.rest) : &bare;
	if (!unit)
		return unit_refuse(text, option, &number, right, true, err);
	return bytes_from(&number, unit->bytes, least, option, text, right, ret_bytes, err);
}

int units_parse_size(const char *text, const char *option, uint64_t *ret_bytes, struct error *err)
{
	return size_parse(text, SLICE_BYTES_MIN, option, ret_bytes, err);
}

int units_parse_amount(const char *text, const char *option, uint64_t *ret_bytes, struct error *err)
{
	return size_parse(text, 1, option, ret_bytes, err);
}

int units_parse_vram(const char *text, uint64_t *ret_bytes, struct error *err)
{
	return units_parse_size(text, "--vram", ret_bytes, err);
}

/* No GPU has this many GiB (288 at most, in 2026). */
#define GIB_OF_NO_GPU 300u

bool units_mebibytes_meant(uint64_t bytes, uint64_t capacity)
{
	const uint64_t gib = KI * KI * KI;

	return bytes % gib == 0 && bytes > capacity && bytes / KI <= capacity &&
	       bytes >= GIB_OF_NO_GPU * gib;
}

bool units_is_bare(const char *text)
{
	size_t length = strlen(text);

	return length && text[length - 1] >= '0' && text[length - 1] <= '9';
}

int units_parse_gpu_memory(const char *text, uint64_t *ret_bytes, struct error *err)
{
	static const char option[] = "--gpu-memory", right[] = "4G (4000 MB) or 4Gi (4 GiB)";
	struct decimal number;
	int rc = number_check(text, option, right, &number, err);

	if (rc < 0)
		return rc;
	const struct unit *unit = unit_find(size_units, ARRAY_SIZE(size_units), number.rest);
	/* In Kubernetes `m` is a thousandth, so this is no million for everybody. */
	if (!unit || !strcmp(number.rest, "m"))
		return unit_refuse(text, option, &number, right, false, err);
	return bytes_from(&number, unit->bytes, SLICE_BYTES_MIN, option, text, right, ret_bytes,
			  err);
}

int units_parse_gpu(const char *text, uint32_t *ret_share, uint32_t *ret_whole, struct error *err)
{
	static const char right[] = "0.25 (a quarter of one GPU) or 2 (two whole GPUs)";
	struct decimal number;
	int rc = number_check(text, "--gpu", right, &number, err);

	if (rc < 0)
		return rc;
	uint64_t one = power_of_ten(MIN(number.scale, 19u));
	uint64_t whole = number.digits / one, part = number.digits % one;
	unsigned __int128 share = (unsigned __int128)number.digits * SHARE_ONE / one;
	if (*number.rest)
		error_set(err, EXIT_CODE_USAGE,
			  "--gpu: '%.64s' ends in '%.32s'; it takes a bare "
			  "number",
			  text, number.rest);
	else if (number.digits == 0)
		error_set(err, EXIT_CODE_USAGE, "--gpu: '%.64s' is zero", text);
	else if (whole >= 1 && part)
		error_set(err, EXIT_CODE_USAGE,
			  "--gpu: '%.64s' is neither a fraction of one GPU "
			  "nor whole GPUs",
			  text);
	else if (whole > 1024)
		error_set(err, EXIT_CODE_USAGE, "--gpu: '%.64s' is more GPUs than a host has",
			  text);
	else if (!whole && share < SHARE_MIN)
		error_set(err, EXIT_CODE_USAGE,
			  "--gpu: '%.64s' is below the smallest fraction, "
			  "0.001",
			  text);
	else {
		*ret_share = whole ? SHARE_ONE : (uint32_t)share;
		*ret_whole = (uint32_t)whole;
		return 0;
	}
	error_hint(err, "for example: --gpu %s", right);
	return -EXIT_CODE_USAGE;
}

/* The value in millionths, of any spelling; 0 or -EXIT_CODE_USAGE. */
static int part_parse(const char *text, const char *option, const char *right,
		      unsigned __int128 *ret, struct error *err)
{
	struct decimal number;
	int rc = number_check(text, option, right, &number, err);

	if (rc < 0)
		return rc;
	bool percent = !strcmp(number.rest, "%");
	if (*number.rest && !percent) {
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' ends in '%.32s'", option, text,
			  number.rest);
		error_hint(err, "for example: %s %s", option, right);
		return -EXIT_CODE_USAGE;
	}
	unsigned __int128 millionths = (unsigned __int128)number.digits * SHARE_ONE;
	unsigned __int128 unit =
		(unsigned __int128)power_of_ten(MIN(number.scale, 19u)) * (percent ? 100 : 1);
	/* A little more than all is more than all. */
	*ret = millionths / unit + (millionths > SHARE_ONE * unit && millionths % unit);
	return 0;
}

int units_parse_part(const char *text, const char *option, const struct units_part *bounds,
		     uint32_t *ret_part, struct error *err)
{
	unsigned __int128 part;
	int rc = part_parse(text, option, bounds->right, &part, err);

	if (rc < 0)
		return rc;
	if (part >= bounds->least && part <= bounds->most) {
		*ret_part = (uint32_t)part;
		return 0;
	}
	error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is outside %g%% to %g%%", option, text,
		  bounds->least * 100.0 / SHARE_ONE, bounds->most * 100.0 / SHARE_ONE);
	if (units_is_bare(text) && part / 100 >= bounds->least && part / 100 <= bounds->most)
		error_hint(err, "a number without %% is a part of 1: did you mean %.32s%%?", text);
	else
		error_hint(err, "for example: %s %s", option, bounds->right);
	return -EXIT_CODE_USAGE;
}

int units_parse_share(const char *text, const char *option, uint32_t *ret_share, struct error *err)
{
	static const char right[] = "25% or 0.25";
	unsigned __int128 share;
	int rc = part_parse(text, option, right, &share, err);

	if (rc < 0)
		return rc;
	if (share == 0)
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is %s", option, text,
			  strpbrk(text, "123456789") ? "less than a millionth, the smallest share"
						     : "zero");
	else if (share > SHARE_ONE)
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is more than the whole GPU", option,
			  text);
	else {
		*ret_share = (uint32_t)share;
		return 0;
	}
	error_hint(err, "for example: %s %s", option, right);
	return -EXIT_CODE_USAGE;
}

#define SECOND 1000000000ull

static const struct unit time_units[] = {
	{"us", 1000u},
	{"ms", 1000000u},
	{"s", SECOND},
	{"sec", SECOND},
	{"second", SECOND},
	{"seconds", SECOND},
	{"m", 60 * SECOND},
	{"min", 60 * SECOND},
	{"minute", 60 * SECOND},
	{"minutes", 60 * SECOND},
	{"h", 3600 * SECOND},
	{"hour", 3600 * SECOND},
	{"hours", 3600 * SECOND},
	{"d", 24ull * 3600 * SECOND},
	{"day", 24ull * 3600 * SECOND},
	{"days", 24ull * 3600 * SECOND},
};

/* The unit at the beginning of a text, which ends before the next number; NULL: it is none. */
static const struct unit *time_unit(const char *text, const char **ret_rest)
{
	char suffix[16];
	size_t length = strcspn(text, "0123456789.");

	*ret_rest = text + length;
	if (length >= sizeof(suffix))
		return NULL;
	memcpy(suffix, text, length);
	suffix[length] = '\0';
	return unit_find(time_units, ARRAY_SIZE(time_units), suffix);
}

/* A time of one part or several, the largest unit first: 90s, 1h30m. `number` is the first one. In
 * ns. NULL, or the text that is wrong. */
static const char *time_sum(struct decimal number, unsigned __int128 *ret)
{
	uint64_t before = UINT64_MAX;

	for (*ret = 0;;) {
		const char *from = number.rest, *rest;
		const struct unit *unit = time_unit(from, &rest);

		if (!unit || unit->bytes >= before)
			return from;
		*ret += (unsigned __int128)number.digits * unit->bytes /
			power_of_ten(MIN(number.scale, 19u));
		before = unit->bytes;
		if (!*rest)
			return NULL;
		if (!decimal_read(rest, &number) || number.too_long)
			return rest;
	}
}

static int time_unit_error(const char *option, const char *text, const char *wrong,
			   const char *right, struct error *err)
{
	char respelled[RESPELLED_SIZE];
	struct decimal meant;
	unsigned __int128 ns;

	if (respell(text, respelled, &meant) && *meant.rest && !time_sum(meant, &ns))
		return respelled_refuse(text, option, respelled, err);
	if (*wrong)
		error_set(err, EXIT_CODE_USAGE,
			  "%s: '%.64s' ends in '%.32s', which is no unit of time (us, ms, s, m, h, "
			  "d; the largest first, as in 1h30m)",
			  option, text, wrong);
	else
		error_set(err, EXIT_CODE_USAGE,
			  "%s: '%.64s' has no unit of time at its end (us, ms, s, m, h, d)", option,
			  text);
	error_hint(err, "for example: %s %s", option, right);
	return -EXIT_CODE_USAGE;
}

int units_parse_seconds(const char *text, const char *option, uint64_t *ret_ns, struct error *err)
{
	static const char right[] = "30, 90s, 5m or 1h30m";
	struct decimal number;
	unsigned __int128 ns;
	int rc = number_check(text, option, right, &number, err);

	if (rc < 0)
		return rc;
	const char *wrong = *number.rest ? time_sum(number, &ns) : NULL;
	if (wrong)
		return time_unit_error(option, text, wrong, right, err);
	if (!*number.rest)
		ns = (unsigned __int128)number.digits * SECOND /
		     power_of_ten(MIN(number.scale, 19u));
	if (ns > (unsigned __int128)1000000000u * 1000000000u)
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is more than 30 years", option, text);
	else {
		*ret_ns = (uint64_t)ns;
		return 0;
	}
	error_hint(err, "for example: %s %s", option, right);
	return -EXIT_CODE_USAGE;
}

int units_parse_duration(const char *text, const char *option, uint64_t min_ns, uint64_t max_ns,
			 uint64_t *ret_ns, struct error *err)
{
	static const char right[] = "250ms";
	char min[UNITS_TEXT_SIZE], max[UNITS_TEXT_SIZE];
	struct decimal number;
	unsigned __int128 ns;
	int rc = number_check(text, option, right, &number, err);

	if (rc < 0)
		return rc;
	const char *wrong = time_sum(number, &ns);
	if (wrong)
		return time_unit_error(option, text, wrong, right, err);
	if (ns < min_ns || ns > max_ns)
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is outside %s to %s", option, text,
			  units_format_duration(min_ns, min), units_format_duration(max_ns, max));
	else {
		*ret_ns = (uint64_t)ns;
		return 0;
	}
	error_hint(err, "for example: %s %s", option, right);
	return -EXIT_CODE_USAGE;
}

int units_parse_count(const char *text, const char *option, uint64_t min, uint64_t max,
		      uint64_t *ret, struct error *err)
{
	struct decimal number;
	char right[32];

	snprintf(right, sizeof(right), "%" PRIu64, MAX(min, 1));
	int rc = number_check(text, option, right, &number, err);
	if (rc < 0)
		return rc;
	if (*number.rest || number.scale) {
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is not a whole number", option, text);
	} else if (number.digits < min || number.digits > max) {
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is outside %" PRIu64 " to %" PRIu64,
			  option, text, min, max);
	} else {
		*ret = number.digits;
		return 0;
	}
	error_hint(err, "for example: %s %s", option, right);
	return -EXIT_CODE_USAGE;
}

/* In hundredths of the largest unit that it has one of, the last one rounded up or down. */
static const char *bytes_text(uint64_t bytes, bool up, char buf[static UNITS_TEXT_SIZE])
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	unsigned unit = 0;
	uint64_t size = 1;

	while (unit + 1 < ARRAY_SIZE(names) && bytes >= size * 1024) {
		size *= 1024;
		unit++;
	}
	unsigned __int128 all = (unsigned __int128)bytes * 100 + (up ? size - 1 : 0);
	uint64_t whole = (uint64_t)(all / size / 100);
	unsigned hundredths = (unsigned)(all / size % 100);
	if (whole == 1024 && unit + 1 < ARRAY_SIZE(names)) {
		whole = 1;
		unit++;
	}
	if (hundredths == 0)
		snprintf(buf, UNITS_TEXT_SIZE, "%" PRIu64 " %s", whole, names[unit]);
	else if (hundredths % 10 == 0)
		snprintf(buf, UNITS_TEXT_SIZE, "%" PRIu64 ".%u %s", whole, hundredths / 10,
			 names[unit]);
	else
		snprintf(buf, UNITS_TEXT_SIZE, "%" PRIu64 ".%02u %s", whole, hundredths,
			 names[unit]);
	return buf;
}

const char *units_format_bytes(uint64_t bytes, char buf[static UNITS_TEXT_SIZE])
{
	return bytes_text(bytes, true, buf);
}

const char *units_format_room(uint64_t bytes, char buf[static UNITS_TEXT_SIZE])
{
	return bytes_text(bytes, false, buf);
}

const char *units_format_count(uint64_t count, const char *one, char buf[static UNITS_TEXT_SIZE])
{
	size_t length = strlen(one);
	const char *ending = count == 1 ? "" : length && strchr("sx", one[length - 1]) ? "es" : "s";

	snprintf(buf, UNITS_TEXT_SIZE, "%" PRIu64 " %s%s", count, one, ending);
	return buf;
}

const char *units_format_duration(uint64_t ns, char buf[static UNITS_TEXT_SIZE])
{
	static const struct {
		uint64_t ns;
		const char *name;
	} scales[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}, {1, "ns"}};
	unsigned at = 0;

	/* Three digits of 999.6 ms are 1 s. */
	while (ns && ns < scales[at].ns - scales[at].ns / 2000)
		at++;
	snprintf(buf, UNITS_TEXT_SIZE, "%.*g %s", ns >= 999 * scales[0].ns ? 9 : 3,
		 (double)ns / (double)scales[at].ns, scales[at].name);
	return buf;
}

const char *units_format_rough_duration(uint64_t ns, char buf[static UNITS_TEXT_SIZE])
{
	static const struct {
		uint64_t least_s, unit_s;
		const char *name;
	} scales[] = {{172800, 86400, "d"}, {7200, 3600, "h"}, {1000, 60, "min"}};

	for (size_t i = 0; i < ARRAY_SIZE(scales); i++) {
		if (ns / 1000000000 < scales[i].least_s)
			continue;
		double count = (double)ns / 1e9 / (double)scales[i].unit_s;

		snprintf(buf, UNITS_TEXT_SIZE, "%.*f %s",
			 count < 99.95 && count != (double)(uint64_t)count ? 1 : 0, count,
			 scales[i].name);
		return buf;
	}
	return units_format_duration(ns, buf);
}

const char *units_format_exact_duration(uint64_t ns, char buf[static UNITS_TEXT_SIZE])
{
	static const struct {
		uint64_t ns;
		const char *name;
	} scales[] = {{86400000000000, "d"}, {3600000000000, "h"}, {60000000000, "m"},
		      {1000000000, "s"},     {1000000, "ms"},      {1000, "us"}};
	int used = snprintf(buf, UNITS_TEXT_SIZE, "%s", ns < 1000 ? "0s" : "");

	for (size_t i = ns < 1000 ? ARRAY_SIZE(scales) : 0; i < ARRAY_SIZE(scales); i++) {
		uint64_t count = ns / scales[i].ns;

		ns %= scales[i].ns;
		if (count && used < UNITS_TEXT_SIZE)
			used += snprintf(buf + used, (size_t)(UNITS_TEXT_SIZE - used),
					 "%" PRIu64 "%s", count, scales[i].name);
	}
	return buf;
}

const char *units_format_time(int64_t ns, enum units_precision precision,
			      char buf[static UNITS_TEXT_SIZE])
{
	int64_t part = ns % 1000000000, seconds = ns / 1000000000;
	char digits[16];
	struct tm utc;

	if (part < 0) {
		part += 1000000000;
		seconds--;
	}
	gmtime_r(&(time_t){seconds}, &utc);
	size_t used = strftime(buf, UNITS_TEXT_SIZE, "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(digits, sizeof(digits), "%09d", (int)part);
	snprintf(buf + used, UNITS_TEXT_SIZE - used, "%s%.*sZ", precision ? "." : "",
		 (int)precision, digits);
	return buf;
}
