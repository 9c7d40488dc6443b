/* A callback that comes back to its session: a question is refused, and a close waits for the call that it is in. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <nearside.h>

static int lines;

static int inside(void *user, const struct nearside_line *line)
{
	struct nearside *drive = user;
	struct nearside_counts counts = { 7, 7, 7 };

	(void)line;
	if (nearside_count(drive, "/text", &counts) != -EBUSY || counts.lines != 7)
		return 1;
	if (!strstr(nearside_error(drive), "callback"))
		return 1;
	lines++;
	return 0;
}

static int closes(void *user, const struct nearside_line *line)
{
	struct nearside *drive = user;

	nearside_close(drive);
	/* The drive is there until the call returns. */
	if (nearside_error(drive) && line->len == 3)
		lines++;
	return 1;
}

int main(int argc, char **argv)
{
	struct nearside *drive = argc == 2 ? nearside_open(argv[1], NULL) : NULL;
	if (!drive)
		return 2;
	if (nearside_grep(drive, "/text", "^", 0, inside, drive) != 3 || lines != 3)
		return 3;
	/* Afterwards it answers again, into memory that nobody has set. */
	struct nearside_counts counts;
	if (nearside_count(drive, "/text", &counts) != 0 || counts.lines != 3)
		return 4;
	/* The text as a table of three rows of four bytes. */
	struct nearside_table table = { NEARSIDE_INT8, 4, 1.0f };
	uint64_t rows[2] = { 2, 0 };
	float values[8], query[4] = { 1, 0, 0, 0 };
	if (nearside_gather(drive, "/text", &table, NEARSIDE_POOL_NONE, rows, NULL, 2, values, 8) != 8
	    || values[0] != 's' || values[4] != 'o' || values[7] != '\n')
		return 6;
	if (nearside_gather(drive, "/text", &table, NEARSIDE_POOL_SUM, rows, NULL, 2, values, 4) != 4
	    || values[0] != 's' + 'o')
		return 7;
	if (nearside_gather(drive, "/text", &table, NEARSIDE_POOL_NONE, rows, NULL, 2, values, 7) != -EINVAL
	    || nearside_gather(drive, "/text", NULL, NEARSIDE_POOL_NONE, rows, NULL, 2, values, 8) != -EBADMSG
	    || nearside_gather(drive, "/text", &table, NEARSIDE_POOL_WEIGHTED, rows, NULL, 2, values, 8) != -EINVAL)
		return 8;
	if (nearside_nearest(drive, "/text", &table, NEARSIDE_INNER_PRODUCT, query, 4, rows, values, 2) != 2
	    || rows[0] != 1 || values[0] != 't' || rows[1] != 2 || values[1] != 's')
		return 9;
	if (nearside_grep(drive, "/text", "^one", 0, closes, drive) != 1 || lines != 4)
		return 5;
	puts("done");
	return 0;
}
