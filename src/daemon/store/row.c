#include "daemon/store/row.h"

#include <errno.h>

#include "daemon/store/database.h"

sqlite3_stmt *row_bind_values(sqlite3_stmt *stmt, int first, const struct row_value *values,
			      size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (values[i].type == RECORD_TEXT)
			sqlite3_bind_text(stmt, first + (int)i, values[i].text, -1,
					  SQLITE_TRANSIENT);
		else if (values[i].type == RECORD_REAL)
			sqlite3_bind_double(stmt, first + (int)i, values[i].real);
		else
			sqlite3_bind_int64(stmt, first + (int)i, values[i].number);
	return stmt;
}

sqlite3_stmt *row_bind_record(sqlite3_stmt *stmt, const struct record_field *fields,
			      const void *record)
{
	for (int i = 0; fields[i].name; i++)
		if (fields[i].type == RECORD_TEXT || fields[i].type == RECORD_BORROWED)
			sqlite3_bind_text(stmt, i + 1, record_text(&fields[i], record), -1,
					  SQLITE_STATIC);
		else if (fields[i].type == RECORD_REAL)
			sqlite3_bind_double(stmt, i + 1,
					    *(double *)record_member(&fields[i], record));
		else
			sqlite3_bind_int64(stmt, i + 1, record_number(&fields[i], record));
	return stmt;
}

int row_step(sqlite3_stmt *stmt)
{
	int step = sqlite3_step(stmt);

	return step == SQLITE_ROW ? 1 : store_errno(step);
}

int row_next(sqlite3_stmt *stmt, const struct record_field *fields, void *ret)
{
	int rc = row_step(stmt);

	if (rc <= 0)
		return rc;
	for (int i = 0; fields[i].name; i++)
		if (fields[i].type == RECORD_TEXT || fields[i].type == RECORD_BORROWED)
			record_set_text(&fields[i], ret,
					(const char *)sqlite3_column_text(stmt, i));
		else if (fields[i].type == RECORD_REAL)
			*(double *)record_member(&fields[i], ret) = sqlite3_column_double(stmt, i);
		else
			record_set_number(&fields[i], ret, sqlite3_column_int64(stmt, i));
	return 1;
}

int store_step(sqlite3_stmt *stmt)
{
	int rc = sqlite3_step(stmt);

	sqlite3_reset(stmt);
	return store_errno(rc);
}

int row_end(sqlite3_stmt *stmt, int rc)
{
	sqlite3_reset(stmt);
	return rc < 0 ? rc : 0;
}

int row_get(sqlite3_stmt *stmt, const struct record_field *fields, void *ret)
{
	int rc = row_next(stmt, fields, ret);

	return row_end(stmt, rc == 0 ? -ENOENT : rc);
}

int row_next_numbers(sqlite3_stmt *stmt, int64_t *ret, int count)
{
	int rc = row_step(stmt);

	for (int i = 0; rc > 0 && i < count; i++)
		ret[i] = sqlite3_column_int64(stmt, i);
	return rc;
}

int row_get_numbers(sqlite3_stmt *stmt, int64_t *ret, int count)
{
	int rc = row_next_numbers(stmt, ret, count);

	return row_end(stmt, rc == 0 ? -ENOENT : rc);
}
