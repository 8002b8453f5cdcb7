/* A placement as the record of the session that gets it. */
#pragma once

struct mig_decision;
struct mig_grant;
struct peer;
struct place_request;
struct place_result;
struct pool;
struct store_gpu;
struct store_session;

/* Fills a session's record from the peer that it is for, its request and where that was placed.
 * `gpus` has room for each GPU of the placement, and becomes the record's. The caller sets the
 * ID, the name, and the rest that the request says of a session's life. */
void grant_record_fill(const struct pool *pool, const struct peer *peer,
		       const struct place_request *request, const struct place_result *place,
		       struct store_gpu *gpus, struct store_session *ret);
/* MIG instances instead of parts of GPUs, in a record that was filled. */
void grant_record_instances(const struct mig_grant *instances, struct store_gpu *gpus);
/* The sizes of instances, for code that counts memory: as decided on, and as they are. */
void grant_of_decision(const struct mig_decision *instances, struct place_result *ret);
void grant_of_instances(const struct mig_grant *instances, struct place_result *ret);
