/* Runs a fuzz target over the files and folders that are named: what was found once stays fixed,
 * also where the compiler has no fuzzer. Prints how many inputs ran. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data = malloc(1 << 20);

	if (!f || !data) {
		perror(path);
		exit(1);
	}
	size_t size = fread(data, 1, 1 << 20, f);
	fclose(f);
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	return 1;
}

static int run_folder(const char *path)
{
	struct dirent **entries;
	int ran = 0, n = scandir(path, &entries, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		char name[4096];

		if (entries[i]->d_name[0] != '.') {
			snprintf(name, sizeof(name), "%s/%s", path, entries[i]->d_name);
			ran += run_file(name);
		}
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return ran;
}

int main(int argc, char **argv)
{
	int ran = 0;

	for (int i = 1; i < argc; i++) {
		struct stat st;

		if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode))
			ran += run_folder(argv[i]);
		else
			ran += run_file(argv[i]);
	}
	printf("%d inputs\n", ran);
	return ran ? 0 : 1;
}
