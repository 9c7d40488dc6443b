/* Trees, several patterns, context, names by kind, what fails, and null pointers where none may be. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <nearside.h>

static int print_line(void *user, const struct nearside_line *line)
{
	(void)user;
	printf("%.*s%c%.*s\n", (int)line->path_len, line->path, line->context ? '-' : ':', (int)line->len, line->bytes);
	return 0;
}

static int print_name(void *user, const struct nearside_entry *entry)
{
	(void)user;
	printf("%.*s", (int)entry->name_len, entry->name);
	if (entry->link)
		printf(" -> %.*s", (int)entry->link_len, entry->link);
	printf("\n");
	return 0;
}

static int first(void *user, const struct nearside_entry *entry)
{
	(void)user;
	(void)entry;
	return 1;
}

static int failed(void *user, const struct nearside_failure *failure)
{
	++*(int *)user;
	printf("! %.*s: %s (%d)\n", (int)failure->path_len, failure->path, failure->words, failure->code == ENOENT);
	return 0;
}

int main(int argc, char **argv)
{
	static const char *paths[] = { "/missing", "/logs", "/hello" };
	static const char *patterns[] = { "one", "^six$" };
	static const char *logs[] = { "*.log" };
	static const char *old[] = { "old" };
	static const char *hole[] = { "one", NULL };
	struct nearside_query query;
	struct nearside_names names;
	struct nearside *drive = argc == 2 ? nearside_open(argv[1], NULL) : NULL;
	int failures = 0;

	if (!drive)
		return 2;
	memset(&query, 0, sizeof query);
	query.paths = paths;
	query.paths_len = 3;
	query.patterns = patterns;
	query.patterns_len = 2;
	query.include = logs;
	query.include_len = 1;
	query.exclude = old;
	query.exclude_len = 1;
	query.flags = NEARSIDE_RECURSIVE;
	query.after = 1;
	query.failed = failed;
	if (nearside_search(drive, &query, print_line, &failures) != 2 || failures != 1)
		return 3;
	/* Without a callback they are counted; without `failed` a path that is not there ends the call. */
	if (nearside_search(drive, &query, NULL, &failures) != 2 || failures != 2)
		return 4;
	query.failed = NULL;
	if (nearside_search(drive, &query, NULL, NULL) != -ENOENT)
		return 5;
	query.paths = paths + 1;
	query.paths_len = 1;
	query.exclude_len = 0;
	query.max_count = 1;
	if (nearside_search(drive, &query, NULL, NULL) != 2)
		return 6;
	query.max_depth = 1;
	if (nearside_search(drive, &query, NULL, NULL) != 1)
		return 7;

	memset(&names, 0, sizeof names);
	names.exclude = old;
	names.exclude_len = 1;
	names.kinds = NEARSIDE_REGULAR | NEARSIDE_SYMLINK;
	if (nearside_find(drive, "/logs", &names, print_name, NULL) != 2)
		return 8;
	if (nearside_find(drive, "/logs", NULL, first, NULL) != 1)
		return 9;
	if (nearside_find(drive, "/missing", &names, print_name, NULL) != -ENOENT)
		return 10;
	/* As a search does, it tells `failed` where there is one. */
	names.failed = failed;
	if (nearside_find(drive, "/missing", &names, print_name, &failures) != 0 || failures != 3)
		return 14;

	query.patterns = hole;
	if (nearside_search(drive, &query, NULL, NULL) != -EINVAL || !strstr(nearside_error(drive), "null"))
		return 11;
	query.patterns = NULL;
	if (nearside_search(drive, &query, NULL, NULL) != -EINVAL || nearside_search(drive, NULL, NULL, NULL) != -EINVAL)
		return 12;
	if (nearside_find(drive, "/logs", NULL, NULL, NULL) != -EINVAL
	    || nearside_find(drive, NULL, NULL, print_name, NULL) != -EINVAL
	    || nearside_find(NULL, "/logs", NULL, print_name, NULL) != -EINVAL)
		return 13;
	nearside_close(drive);
	return 0;
}
