/* Searches one file in a volume by its path: one command to the drive, and only the lines that match come back.
 *
 *   cc search.c $(pkg-config --cflags --libs nearside) -o search
 *   ./search disk.img /var/log/syslog ERROR
 */
#include <inttypes.h>
#include <stdio.h>

#include <nearside.h>

static int print(void *user, const struct nearside_line *line)
{
	(void)user;
	printf("%.*s:%" PRIu64 ":%.*s\n", (int)line->path_len, line->path, line->number, (int)line->len, line->bytes);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: %s DRIVE PATH PATTERN\n", argv[0]);
		return 2;
	}
	struct nearside *drive = nearside_open(argv[1], NULL);
	if (!drive) {
		fprintf(stderr, "%s\n", nearside_error(NULL));
		return 2;
	}
	int64_t found = nearside_grep(drive, argv[2], argv[3], 0, print, NULL);
	if (found < 0)
		fprintf(stderr, "%s: %s\n", argv[2], nearside_error(drive));

	struct nearside_traffic moved;
	struct nearside_completion completion;
	if (nearside_moved(drive, &moved) == 0 && nearside_completion_model(drive, &completion) == 0)
		fprintf(stderr, "commands: %" PRIu64 " (the drive counted %" PRIu64 "), reads: %" PRIu64 ", to the drive: %" PRIu64
			" B, from the drive: %" PRIu64 " B, completion: %s\n",
			moved.near_data_commands, moved.drive_commands, moved.read_commands, moved.bytes_out, moved.bytes_in,
			completion.model);
	nearside_close(drive);
	return found < 0 ? 2 : found == 0;
}
