/* The schema of queue.db, and the statements on it. */
#pragma once

#include "daemon/store/database.h"

extern const struct database_schema job_schema;

enum {
	Q_BEGIN,
	Q_COMMIT,
	Q_ROLLBACK,
	Q_SPEC_ADD,
	Q_SPEC_GET,
	Q_SPEC_ENTERED,
	Q_REMOVE,
	Q_SPEC_REMOVE,
	Q_SPEC_IDLE,
	Q_ENDED_COUNTS,
	Q_ENDED_FIRST,
	Q_ENDED_REMOVE,
	Q_NUMBER_LAST,
	Q_NUMBER_SET,
	Q_JOB_ADD,
	Q_JOB_PUT,
	Q_LIVING,
	Q_ENDED,
	Q_ENDED_OF,
	Q_ONE,
	Q_ARRAY,
	Q_ARRAY_PART,
	Q_COUNT_ONE,
	Q_COUNT_ARRAY,
	Q_COUNT_ELEMENT,
	Q_ELEMENT,
	Q_ELEMENT_ID,
	Q_ASKED_PUT,
	Q_ASKED_GET,
	Q_ASKED_TRIM,
	Q_ASKED_FORGET,
	Q_AGENT_PUT,
	Q_AGENT_REMOVE,
	Q_AGENTS,
	Q_OVER_PUT,
	Q_OVERS,
	Q_OVER_REMOVE,
	Q_CHANGED,
	Q_CHANGE_LAST,
	Q_CHANGE_SET,
	Q_ID,
	Q_USE_PUT,
	Q_USES,
	Q_COUNT
};

extern const char *const job_statements[Q_COUNT];
