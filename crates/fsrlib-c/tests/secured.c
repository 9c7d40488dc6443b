/* secured DRIVE HOST HOST-KEY TLS-KEY CONCATENATES [LOSS-MS]: counts the lines of /text as that host; "-" is no key. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nearside.h>

static const char *given(const char *word)
{
	return strcmp(word, "-") ? word : NULL;
}

int main(int argc, char **argv)
{
	struct nearside_options options;
	struct nearside_counts counts;
	struct nearside *drive;

	if (argc != 6 && argc != 7)
		return 3;
	memset(&options, 0, sizeof options);
	options.has_credentials = 1;
	options.host_nqn = argv[2];
	options.host_key_file = given(argv[3]);
	options.tls_key_file = given(argv[4]);
	options.concatenates = atoi(argv[5]);
	options.reconnect_delay_ms = 50;
	options.ctrl_loss_tmo_ms = argc == 7 ? (uint32_t)strtoul(argv[6], NULL, 10) : NEARSIDE_NO_ATTEMPT;
	drive = nearside_open(argv[1], &options);
	if (!drive || nearside_count(drive, "/text", &counts)) {
		fprintf(stderr, "%s\n", nearside_error(drive));
		return 2;
	}
	printf("%d\n", (int)counts.lines);
	fflush(stdout);
	/* Again once something has come, by when the server may be another, or none. */
	if (getchar() != EOF) {
		if (nearside_count(drive, "/text", &counts)) {
			fprintf(stderr, "%s\n", nearside_error(drive));
			return 1;
		}
		printf("%d\n", (int)counts.lines);
	}
	nearside_close(drive);
	return 0;
}
