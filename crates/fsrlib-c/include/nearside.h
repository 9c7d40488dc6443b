/* FSRLib: near-data commands by path, for C. Link with -lnearside (pkg-config nearside). A path is absolute in the
 * volume and is that path: no byte of it stands for anything else. A callback has -EBUSY from the session that calls it, and may close it.
 * Written by cbindgen from crates/fsrlib-c; a test holds it up to date. */

#ifndef NEARSIDE_H
#define NEARSIDE_H

#include <stddef.h>
#include <stdint.h>

/*
 Bits of `nearside_grep`'s flags: the pattern is a literal, not a regular expression.
 */
#define NEARSIDE_FIXED 1

/*
 Case is ignored.
 */
#define NEARSIDE_IGNORE_CASE 2

/*
 Lines that do not match.
 */
#define NEARSIDE_INVERT 4

/*
 Whole words only.
 */
#define NEARSIDE_WORD 8

/*
 Whole lines only.
 */
#define NEARSIDE_LINE 16

/*
 Binary files are text.
 */
#define NEARSIDE_TEXT 32

/*
 Every file below the path, which may be a directory.
 */
#define NEARSIDE_RECURSIVE 64

/*
 The pattern is over bytes, not characters: Unicode is off.
 */
#define NEARSIDE_NO_UNICODE 128

/*
 What a name may be: a regular file.
 */
#define NEARSIDE_REGULAR 1

/*
 A directory.
 */
#define NEARSIDE_DIRECTORY 2

/*
 A symbolic link.
 */
#define NEARSIDE_SYMLINK 4

/*
 A device, a pipe or a socket.
 */
#define NEARSIDE_SPECIAL 8

/*
 Which checksum: CRC-32C, 4 bytes, big-endian.
 */
#define NEARSIDE_CRC32C 0

/*
 XXH3, 8 bytes, big-endian.
 */
#define NEARSIDE_XXH3 1

/*
 SHA-256, 32 bytes.
 */
#define NEARSIDE_SHA256 2

/*
 How numbers of a table are stored: as the file's .npy header says.
 */
#define NEARSIDE_NPY 0

/*
 IEEE 754, 32 bits, little-endian as all that follow.
 */
#define NEARSIDE_F32 1

/*
 IEEE 754, 16 bits.
 */
#define NEARSIDE_F16 2

/*
 The upper half of 32 bits.
 */
#define NEARSIDE_BF16 3

/*
 A signed integer of 8 bits.
 */
#define NEARSIDE_INT8 4

/*
 What is made of rows: nothing.
 */
#define NEARSIDE_POOL_NONE 0

/*
 Their sum.
 */
#define NEARSIDE_POOL_SUM 1

/*
 Their mean.
 */
#define NEARSIDE_POOL_MEAN 2

/*
 The sum of each times its weight.
 */
#define NEARSIDE_POOL_WEIGHTED 3

/*
 What near means: a large inner product.
 */
#define NEARSIDE_INNER_PRODUCT 0

/*
 A small square of the distance.
 */
#define NEARSIDE_L2 1

/*
 A lost connection is not made again.
 */
#define NEARSIDE_NO_ATTEMPT (UINT32_MAX - 1)

/*
 A lost connection is tried until it is there again.
 */
#define NEARSIDE_FOR_EVER UINT32_MAX

/*
 An open drive.
 */
struct nearside;

/*
 How a session is opened. Zeroed, it means the defaults.
 */
struct nearside_options {
  /*
   Which partition holds the volume; 0: the only one with a known file system.
   */
  uint32_t partition;
  /*
   How completions are awaited: 0 polled, 1 interrupt, 2 hybrid.
   */
  uint32_t completion;
  /*
   Whether `uid`, `gid` and `groups` say for whom permissions are checked; 0:
   for the calling process, by its effective ids and its groups.
   */
  uint32_t has_credentials;
  /*
   User.
   */
  uint32_t uid;
  /*
   Group.
   */
  uint32_t gid;
  /*
   Number of supplementary groups.
   */
  uint32_t groups_len;
  /*
   Supplementary groups; may be null where there are none.
   */
  const uint32_t *groups;
  /*
   To a target over the network: this host's NQN, by which it is allowed; null: one that is made of this
   machine and user.
   */
  const char *host_nqn;
  /*
   To such a target: a file with this host's key, where it asks for a proof (DH-HMAC-CHAP), or
   `keyring:NAME`, a key that the kernel keeps, as of each key here; may be null.
   */
  const char *host_key_file;
  /*
   A file with the subsystem's key, which then has to prove who it is as well; may be null.
   */
  const char *controller_key_file;
  /*
   Whether headers on the network are protected by digests.
   */
  uint32_t header_digest;
  /*
   Whether data on the network are.
   */
  uint32_t data_digest;
  /*
   A file with a TLS key: connections are encrypted, and both ends prove by it who they are; may be null.
   */
  const char *tls_key_file;
  /*
   Whether connections are encrypted by what the keys of `host_key_file` agree on.
   */
  uint32_t concatenates;
  /*
   Milliseconds from the loss of a connection to the first attempt to make it again, and from each to the
   next; 0: 10,000.
   */
  uint32_t reconnect_delay_ms;
  /*
   Milliseconds after which there are no more attempts; 0: 600,000; or NEARSIDE_NO_ATTEMPT,
   NEARSIDE_FOR_EVER.
   */
  uint32_t ctrl_loss_tmo_ms;
};

/*
 Lines, words and bytes, as wc counts them.
 */
struct nearside_counts {
  /*
   Newlines.
   */
  uint64_t lines;
  /*
   Words.
   */
  uint64_t words;
  /*
   Bytes.
   */
  uint64_t bytes;
};

/*
 Metadata of a file.
 */
struct nearside_entry {
  /*
   Its name (`nearside_list`) or path (`nearside_find`); not terminated by a zero byte; valid during the
   callback only, and null from `nearside_stat`.
   */
  const char *name;
  /*
   The name's length.
   */
  size_t name_len;
  /*
   Inode number; 0 in a directory that may be read but not searched: there is only the type in `mode`.
   */
  uint64_t ino;
  /*
   Type and permission bits, as `st_mode`.
   */
  uint32_t mode;
  /*
   Names that it has.
   */
  uint32_t links;
  /*
   Owner.
   */
  uint32_t uid;
  /*
   Group.
   */
  uint32_t gid;
  /*
   Bytes.
   */
  uint64_t size;
  /*
   512-byte units allocated.
   */
  uint64_t sectors;
  /*
   Last access, content change and inode change: seconds since 1970.
   */
  int64_t seconds[3];
  /*
   Their nanoseconds.
   */
  uint32_t nanoseconds[3];
  /*
   Where a symbolic link leads; as `name`, and null of what is none.
   */
  const char *link;
  /*
   Its length.
   */
  size_t link_len;
};

/*
 Takes an entry; anything but 0 ends the list.
 */
typedef int (*nearside_entry_fn)(void *user, const struct nearside_entry *entry);

/*
 Takes bytes of a file, in order; anything but 0 ends the read.
 */
typedef int (*nearside_data_fn)(void *user, uint64_t offset, const char *bytes, size_t len);

/*
 What a session has moved.
 */
struct nearside_traffic {
  /*
   Near-data commands sent.
   */
  uint64_t near_data_commands;
  /*
   The drive's own count of the near-data commands that it has taken, from whomever;
   `UINT64_MAX` behind a socket.
   */
  uint64_t drive_commands;
  /*
   Ordinary reads sent.
   */
  uint64_t read_commands;
  /*
   Bytes sent to the drive.
   */
  uint64_t bytes_out;
  /*
   Bytes received from it.
   */
  uint64_t bytes_in;
  /*
   Nanoseconds between sending commands and having their answers.
   */
  uint64_t round_trip_ns;
};

/*
 Which completion model holds, and what it expects (FAST'12, section 4).
 */
struct nearside_completion {
  /*
   "polled", "interrupt", "hybrid", or "socket"; terminated.
   */
  char model[16];
  /*
   What a read of 4 KiB is expected to take, in nanoseconds; 0 where nothing is known yet.
   */
  uint64_t read_4k_ns;
  /*
   Nanoseconds that the driver has spent spinning.
   */
  uint64_t spinning_ns;
};

/*
 Something that failed while the rest goes on. Valid during the callback only.
 */
struct nearside_failure {
  /*
   Its path; not terminated by a zero byte.
   */
  const char *path;
  /*
   The path's length.
   */
  size_t path_len;
  /*
   Why, as an `errno`.
   */
  int code;
  /*
   Why, in words; terminated.
   */
  const char *words;
};

/*
 Takes what failed; anything but 0 ends the call.
 */
typedef int (*nearside_failed_fn)(void *user, const struct nearside_failure *failure);

/*
 What is searched for, and where (`nearside_search`). Zeroed but for the paths and the patterns, it means
 the defaults.
 */
struct nearside_query {
  /*
   Files, or with NEARSIDE_RECURSIVE directories.
   */
  const char *const *paths;
  /*
   How many.
   */
  size_t paths_len;
  /*
   What is found is a line that any of them matches.
   */
  const char *const *patterns;
  /*
   How many.
   */
  size_t patterns_len;
  /*
   With NEARSIDE_RECURSIVE: only files whose names one of these globs matches; null: all.
   */
  const char *const *include;
  /*
   How many.
   */
  size_t include_len;
  /*
   With NEARSIDE_RECURSIVE: no files, and no directories with all below them, that one of these globs
   matches.
   */
  const char *const *exclude;
  /*
   How many.
   */
  size_t exclude_len;
  /*
   NEARSIDE_FIXED and so on.
   */
  uint32_t flags;
  /*
   With NEARSIDE_RECURSIVE: the deepest level, 1 being what is in the directory itself; 0: no limit.
   */
  uint32_t max_depth;
  /*
   Lines of context before each that is found.
   */
  uint32_t before;
  /*
   Lines of context behind it.
   */
  uint32_t after;
  /*
   Most lines of each file; 0: all.
   */
  uint64_t max_count;
  /*
   Takes what cannot be searched; may be null.
   */
  nearside_failed_fn failed;
};

/*
 A line that was found. Valid during the callback only.
 */
struct nearside_line {
  /*
   The file's path; not terminated by a zero byte.
   */
  const char *path;
  /*
   Its length.
   */
  size_t path_len;
  /*
   Number of the line, from 1.
   */
  uint64_t number;
  /*
   Byte in the file at which `bytes` begins.
   */
  uint64_t offset;
  /*
   The line without its end; not terminated by a zero byte.
   */
  const char *bytes;
  /*
   Its length.
   */
  size_t len;
  /*
   Not 0: it is a line of context, and was not found itself.
   */
  int context;
};

/*
 Takes a line; anything but 0 ends the search.
 */
typedef int (*nearside_line_fn)(void *user, const struct nearside_line *line);

/*
 Which names are listed (`nearside_find`). Zeroed, it means all.
 */
struct nearside_names {
  /*
   Only names that one of these globs matches; null: all.
   */
  const char *const *include;
  /*
   How many.
   */
  size_t include_len;
  /*
   No names, and nothing below them, that one of these globs matches.
   */
  const char *const *exclude;
  /*
   How many.
   */
  size_t exclude_len;
  /*
   Only these kinds: NEARSIDE_REGULAR and so on, added up; 0: all.
   */
  uint32_t kinds;
  /*
   The deepest level, 1 being what is in the directory itself; 0: no limit.
   */
  uint32_t max_depth;
  /*
   Takes what cannot be listed; may be null.
   */
  nearside_failed_fn failed;
};

/*
 How a file is a table of numbers.
 */
struct nearside_table {
  /*
   How they are stored: NEARSIDE_NPY, NEARSIDE_F32 and so on.
   */
  uint32_t element;
  /*
   Numbers in a row; with NEARSIDE_NPY the header says it.
   */
  uint32_t columns;
  /*
   What each number is multiplied by: 1, where they are meant as they are.
   */
  float scale;
};

#ifdef __cplusplus
extern "C" {
#endif /* __cplusplus */

/*
 Opens a drive, by the names that the command `nearside` takes: an image (raw, qcow2, also as .gz or .zst;
 `qcow2:PATH`, `lvm:PATH?volume=VG/LV`, `file:PATH`) or a block device (a drive embedded in this process,
 read-only), `unix:PATH` (the socket of a drive that `nearside attach` serves),
 `nvme+tcp://HOST:PORT/NQN/NSID` (over the network; several `HOST:PORT` with commas between them are paths
 to one drive, and a connection that is lost is made again, for ten minutes), `vfio-user:PATH` (in another
 process), `/dev/ngXnY` (through a kernel that is connected to it). `options` may be null. Returns null
 where it fails: `nearside_error(NULL)` says why.

 # Safety
 `drive` is a terminated string; `options` is null or valid, its `groups` valid for `groups_len` numbers,
 its strings null or terminated.
 */
struct nearside *nearside_open(const char *drive,
                               const struct nearside_options *options);

/*
 Closes a drive. Null is nothing. From a callback: when the call that it is in returns, to which the
 callback should then return something other than 0.

 # Safety
 `drive` comes from `nearside_open`, is not used by another thread, and is not used again.
 */
void nearside_close(struct nearside *drive);

/*
 Why the last call on this session failed; for null, why the last `nearside_open` of this thread did.
 Valid until the next call.

 # Safety
 `drive` is null or an open session.
 */
const char *nearside_error(const struct nearside *drive);

/*
 Counts lines, words and bytes of a file, in the drive. Returns 0.

 # Safety
 `drive` is an open session, `path` a terminated string, `counts` valid for writing.
 */
int64_t nearside_count(struct nearside *drive, const char *path, struct nearside_counts *counts);

/*
 A checksum (`digest`: NEARSIDE_CRC32C and so on) over a file, in the drive: its bytes go to `value`, which
 has room for `room`. Returns how many there are.

 # Safety
 `drive` is an open session, `path` a terminated string, `value` valid for writing `room` bytes.
 */
int64_t nearside_checksum(struct nearside *drive,
                          const char *path,
                          uint32_t digest,
                          uint8_t *value,
                          size_t room);

/*
 Metadata of a file; `follow`: of what a symbolic link leads to. Returns 0.

 # Safety
 `drive` is an open session, `path` a terminated string, `stat` valid for writing.
 */
int64_t nearside_stat(struct nearside *drive,
                      const char *path,
                      int follow,
                      struct nearside_entry *stat);

/*
 Entries of a directory, without "." and "..", in byte order of names, or in the directory's own where it
 has more than 128 KiB. Returns how many the callback had.

 # Safety
 `drive` is an open session, `path` a terminated string; `callback` may be called with `user`.
 */
int64_t nearside_list(struct nearside *drive,
                      const char *path,
                      nearside_entry_fn callback,
                      void *user);

/*
 Bytes `offset` to `offset + len` of a file, cut at its end, handed to the callback piece by piece.
 Returns how many.

 # Safety
 `drive` is an open session, `path` a terminated string; `callback` may be called with `user`.
 */
int64_t nearside_read(struct nearside *drive,
                      const char *path,
                      uint64_t offset,
                      uint64_t len,
                      nearside_data_fn callback,
                      void *user);

/*
 What the session has moved so far. Returns 0.

 # Safety
 `drive` is an open session, `traffic` valid for writing.
 */
int64_t nearside_moved(struct nearside *drive, struct nearside_traffic *traffic);

/*
 Which completion model holds, and what it expects. Returns 0.

 # Safety
 `drive` is an open session, `completion` valid for writing.
 */
int64_t nearside_completion_model(struct nearside *drive, struct nearside_completion *completion);

/*
 Searches files, or what lies below directories, for lines that any of several patterns matches (the regex
 crate's syntax), in the drive. Each line goes to `callback`, which may be null, in the order of the paths
 and of names below them. Returns how many lines were found.

 Without `query->failed` the call ends with the first path that cannot be searched, and files below a
 directory that cannot be are passed over; with it both are told to that, and the rest is searched.

 # Safety
 `drive` is an open session; `query` is valid, its lists null or valid for as many terminated strings as it
 says; `callback` and `query->failed` may be called with `user`.
 */
int64_t nearside_search(struct nearside *drive,
                        const struct nearside_query *query,
                        nearside_line_fn callback,
                        void *user);

/*
 Searches the file at `path` for `pattern` (the regex crate's syntax; `flags`: NEARSIDE_FIXED and so on),
 in the drive, by one command. Each line goes to `callback`, which may be null. Returns how many lines were
 found.

 With NEARSIDE_RECURSIVE, files that cannot be read are passed over.

 # Safety
 `drive` is an open session; `path` and `pattern` are terminated strings; `callback` may be called with
 `user`.
 */
int64_t nearside_grep(struct nearside *drive,
                      const char *path,
                      const char *pattern,
                      uint32_t flags,
                      nearside_line_fn callback,
                      void *user);

/*
 What lies at and below `path`, in byte order of names but in directories of more than 128 KiB, which have
 an order of their own. `names` may be null: all. Returns how many the callback had.

 What cannot be listed is told to `names->failed`; without that it is passed over, but for `path` itself.

 # Safety
 `drive` is an open session, `path` a terminated string; `names` is null or valid, its lists null or valid
 for as many terminated strings as it says; `callback` and `names->failed` may be called with `user`.
 */
int64_t nearside_find(struct nearside *drive,
                      const char *path,
                      const struct nearside_names *names,
                      nearside_entry_fn callback,
                      void *user);

/*
 Reads `count` rows of a table by their numbers, from 0, and writes to `values` the numbers of each, one
 row after the other, or those of one row that is made of them (`pooling`: NEARSIDE_POOL_SUM and so on).
 `table` may be null: as the file's .npy header says. `weights` is for NEARSIDE_POOL_WEIGHTED alone, one
 for each row. Returns how many numbers were written.

 # Safety
 `drive` is an open session, `path` a terminated string, `table` null or valid, `rows` and, where it is
 used, `weights` valid for `count` numbers, `values` valid for writing `room` numbers.
 */
int64_t nearside_gather(struct nearside *drive,
                        const char *path,
                        const struct nearside_table *table,
                        uint32_t pooling,
                        const uint64_t *rows,
                        const float *weights,
                        size_t count,
                        float *values,
                        size_t room);

/*
 Finds the `count` rows of a table that are nearest to a query, by `measure` (NEARSIDE_INNER_PRODUCT,
 NEARSIDE_L2): their numbers, from 0, the nearest first, go to `rows`, and inner products or squares of
 distances to `scores`. `table` may be null: as the file's .npy header says. Returns how many there are.

 # Safety
 `drive` is an open session, `path` a terminated string, `table` null or valid, `query` valid for `columns`
 numbers, `rows` and `scores` valid for writing `count` numbers.
 */
int64_t nearside_nearest(struct nearside *drive,
                         const char *path,
                         const struct nearside_table *table,
                         uint32_t measure,
                         const float *query,
                         size_t columns,
                         uint64_t *rows,
                         float *scores,
                         uint32_t count);

#ifdef __cplusplus
}  /* extern "C" */
#endif  /* __cplusplus */

#endif  /* NEARSIDE_H */
