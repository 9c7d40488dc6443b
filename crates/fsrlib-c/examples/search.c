/* Searches what lies below a path of a volume for lines that match any of some patterns: one command to the drive, and only
 * those lines come back. Without a pattern it lists the names below the path. DRIVE is any name that nearside(1) takes.
 *
 *   cc search.c $(pkg-config --cflags --libs nearside) -o search
 *   ./search disk.img /var/log ERROR 'timed? out'
 *   ./search nvme+tcp://HOST:4420/NQN/1 /var/log
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <nearside.h>

static int print_line(void *user, const struct nearside_line *line)
{
	(void)user;
	printf("%.*s:%" PRIu64 ":%.*s\n", (int)line->path_len, line->path, line->number, (int)line->len, line->bytes);
	return 0;
}

static int print_name(void *user, const struct nearside_entry *entry)
{
	(void)user;
	printf("%.*s\n", (int)entry->name_len, entry->name);
	return 0;
}

/* What cannot be read is said, and the rest goes on. */
static int complain(void *user, const struct nearside_failure *failure)
{
	int *failures = (int *)user;

	++*failures;
	fprintf(stderr, "%.*s: %s\n", (int)failure->path_len, failure->path, failure->words);
	return 0;
}

int main(int argc, char **argv)
{
	struct nearside *drive;
	struct nearside_query query;
	struct nearside_names names;
	struct nearside_traffic moved;
	struct nearside_completion completion;
	const char *path;
	int failures = 0;
	int64_t found;

	if (argc < 3) {
		fprintf(stderr, "usage: %s DRIVE PATH [PATTERN]...\n", argv[0]);
		return 2;
	}
	drive = nearside_open(argv[1], NULL);
	if (!drive) {
		fprintf(stderr, "%s\n", nearside_error(NULL));
		return 2;
	}
	path = argv[2];
	if (argc > 3) {
		memset(&query, 0, sizeof query);
		query.paths = &path;
		query.paths_len = 1;
		query.patterns = (const char *const *)&argv[3];
		query.patterns_len = (size_t)argc - 3;
		query.flags = NEARSIDE_RECURSIVE;
		query.failed = complain;
		found = nearside_search(drive, &query, print_line, &failures);
	} else {
		memset(&names, 0, sizeof names);
		names.failed = complain;
		found = nearside_find(drive, path, &names, print_name, &failures);
	}
	if (found < 0)
		fprintf(stderr, "%s: %s\n", path, nearside_error(drive));

	if (nearside_moved(drive, &moved) == 0 && nearside_completion_model(drive, &completion) == 0)
		fprintf(stderr, "commands: %" PRIu64 " (the drive counted %" PRIu64 "), reads: %" PRIu64 ", to the drive: %" PRIu64
			" B, from the drive: %" PRIu64 " B, completion: %s\n",
			moved.near_data_commands, moved.drive_commands, moved.read_commands, moved.bytes_out, moved.bytes_in,
			completion.model);
	nearside_close(drive);
	return found < 0 || failures ? 2 : found == 0;
}
