#include "warden/warrant.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "proto/warden_jobs.h"

#define KEY_FILE "key"
#define KEY_FRESH "key.new"

/* ---- the function ------------------------------------------------------------------------- */

static uint64_t rotate(uint64_t x, unsigned by)
{
	return x << by | x >> (64 - by);
}

static void rounds(uint64_t v[4], unsigned count)
{
	while (count--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotate(v[1], 13) ^ v[0];
		v[3] = rotate(v[3], 16) ^ v[2];
		v[0] = rotate(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotate(v[1], 17) ^ v[2];
		v[3] = rotate(v[3], 21) ^ v[0];
		v[2] = rotate(v[2], 32);
	}
}

static void word_take(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	rounds(v, 2);
	v[0] ^= word;
}

/* Little-endian machines alone: as all of carve. */
void siphash(const struct warrant_key *key, const void *data, size_t size, uint64_t ret[2])
{
	uint64_t v[4] = {
		key->word[0] ^ 0x736f6d6570736575,
		key->word[1] ^ 0x646f72616e646f6d ^ 0xee,
		key->word[0] ^ 0x6c7967656e657261,
		key->word[1] ^ 0x7465646279746573,
	};
	const unsigned char *at = data;
	uint64_t word, last = (uint64_t)(size & 0xff) << 56;
	size_t left = size;

	for (; left >= sizeof(word); left -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		word_take(v, word);
	}
	for (size_t i = 0; i < left; i++)
		last |= (uint64_t)at[i] << (8 * i);
	word_take(v, last);
	v[2] ^= 0xee;
	rounds(v, 4);
	ret[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
	v[1] ^= 0xdd;
	rounds(v, 4);
	ret[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* ---- warrants ----------------------------------------------------------------------------- */

static int code_of(const struct warrant_key *key, const struct warrant *warrant, const void *text,
		   size_t size, uint64_t ret[2])
{
	cleanup_free unsigned char *all = malloc(sizeof(*warrant) + size);
	struct warrant plain = *warrant;

	if (!all)
		return -ENOMEM;
	plain.code[0] = plain.code[1] = 0;
	memcpy(all, &plain, sizeof(plain));
	memcpy(all + sizeof(plain), text, size);
	siphash(key, all, sizeof(plain) + size, ret);
	// NOLINTNEXTLINE(clang-analyzer-unix.Malloc): freed by its cleanup
	return 0;
}

int warrant_sign(const struct warrant_key *key, struct warrant *warrant, const void *text,
		 size_t size)
{
	return code_of(key, warrant, text, size, warrant->code);
}

int warrant_check(const struct warrant_key *key, const struct warrant *warrant,
		  enum warrant_kind kind, const void *text, size_t size)
{
	uint64_t code[2];

	if (warrant->magic != WARRANT_MAGIC || warrant->version != WARRANT_VERSION ||
	    warrant->group_count > WARRANT_GROUPS_MAX || warrant->kind != kind)
		return -EPERM;
	int rc = code_of(key, warrant, text, size, code);
	if (rc < 0)
		return rc;
	/* In a time that does not depend on where they differ. */
	uint64_t differ = (code[0] ^ warrant->code[0]) | (code[1] ^ warrant->code[1]);
	return differ ? -EPERM : 0;
}

/* ---- the key ------------------------------------------------------------------------------ */

static int key_read(int dir_fd, struct warrant_key *ret)
{
	struct stat st;
	cleanup_close int fd = openat(dir_fd, KEY_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077 || st.st_nlink != 1)
		return -EPERM;
	return read(fd, ret, sizeof(*ret)) == sizeof(*ret) ? 0 : -EIO;
}

static int key_put(int dir_fd, const struct warrant_key *key)
{
	(void)unlinkat(dir_fd, KEY_FRESH, 0);
	cleanup_close int fd = openat(dir_fd, KEY_FRESH,
				      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	int rc = write_all(fd, key, sizeof(*key));
	if (rc == 0 && (fsync(fd) < 0 || renameat(dir_fd, KEY_FRESH, dir_fd, KEY_FILE) < 0))
		rc = -errno;
	return rc;
}

static int key_make(int dir_fd)
{
	struct warrant_key key;

	return getrandom(&key, sizeof(key), 0) == sizeof(key) ? key_put(dir_fd, &key) : -EIO;
}

int warrant_key_get(int dir_fd, struct warrant_key *ret)
{
	int rc = key_read(dir_fd, ret);

	if (rc != -ENOENT)
		return rc;
	rc = key_make(dir_fd);
	return rc < 0 ? rc : key_read(dir_fd, ret);
}

int warrant_key_forget(int dir_fd)
{
	return unlinkat(dir_fd, KEY_FILE, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int warrant_key_keep(int dir_fd, const struct warrant_key *key)
{
	if (faccessat(dir_fd, KEY_FILE, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	return errno == ENOENT ? key_put(dir_fd, key) : -errno;
}
