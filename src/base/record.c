#include "base/record.h"

#include <stdio.h>
#include <string.h>

int64_t record_number(const struct record_field *field, const void *record)
{
	const void *at = record_member(field, record);
	bool is_signed = field->type == RECORD_SIGNED;

	switch (field->size) {
	case 1:
		return is_signed ? *(const int8_t *)at : *(const uint8_t *)at;
	case 2:
		return is_signed ? *(const int16_t *)at : *(const uint16_t *)at;
	case 4:
		return is_signed ? *(const int32_t *)at : *(const uint32_t *)at;
	default:
		return *(const int64_t *)at;
	}
}

void record_set_number(const struct record_field *field, void *record, int64_t value)
{
	void *at = record_member(field, record);

	if (field->type == RECORD_BOOL)
		value = value != 0;
	switch (field->size) {
	case 0:
		break;
	case 1:
		*(uint8_t *)at = (uint8_t)value;
		break;
	case 2:
		*(uint16_t *)at = (uint16_t)value;
		break;
	case 4:
		*(uint32_t *)at = (uint32_t)value;
		break;
	default:
		*(int64_t *)at = value;
	}
}

const char *record_text(const struct record_field *field, const void *record)
{
	const char *at = record_member(field, record);

	if (field->type == RECORD_BORROWED)
		at = *(const char *const *)at;
	return at ? at : "";
}

void record_set_text(const struct record_field *field, void *record, const char *text)
{
	char *at = record_member(field, record);

	if (!text)
		text = "";
	if (field->type == RECORD_BORROWED)
		*(const char **)at = text;
	else
		snprintf(at, field->size, "%s", text);
}
