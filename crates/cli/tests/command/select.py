"""Tables, questions and DuckDB's answers, by a seed."""
import datetime, json, random, struct, sys
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

FOLDER, TREE, SEED, TABLES, CASES = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
rng = random.Random(SEED)
WORDS = ['Bern', 'Basel', 'Zürich', 'Genève', 'B', 'new\nline', 'comma, here', 'a "quote"', ' spaces ', 'x%y_z', '日本語',
         'semi;colon', "it's", 'tab\there', 'NULL', 'héllo', '\U0001F600', 'aaa', 'aab', 'Abc', 'aBC']
KINDS = {'bool': 'BOOLEAN', 'int64': 'BIGINT', 'float64': 'DOUBLE', 'date': 'DATE', 'timestamp': 'TIMESTAMP', 'utf8': 'VARCHAR'}


def value(kind):
    if kind == 'bool':
        return rng.random() < 0.5
    if kind == 'int64':
        return rng.choice([rng.randint(-9, 9), rng.randint(-9, 9), rng.randint(-10**6, 10**6), rng.randint(-2**40, 2**40)])
    if kind == 'float64':
        return rng.choice([rng.randint(-8, 8) / 4, rng.uniform(-100, 100), rng.uniform(-1, 1) * 10.0 ** rng.randint(-12, 12)])
    day = datetime.date(2020, 1, 1) + datetime.timedelta(days=rng.randint(-400, 400))
    if kind == 'date':
        return day
    if kind == 'timestamp':
        of_day = datetime.timedelta(seconds=rng.randint(0, 86399), microseconds=rng.choice([0, 0, 500000, 123456, 1]))
        return datetime.datetime(day.year, day.month, day.day) + of_day
    return rng.choice(WORDS) + (str(rng.randint(0, 3)) if rng.random() < 0.3 else '')


def text(value):
    if isinstance(value, bool):
        return rng.choice(['true', 'TRUE', 'True']) if value else 'false'
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime.datetime):
        whole = value.isoformat(sep=rng.choice('T '))
        return whole.rstrip('0') if value.microsecond else whole
    return str(value)


def field(value, delimiter):
    if value is None:
        return rng.choice(['', '', '""'])
    value = text(value)
    if any(c in value for c in (delimiter, '"', '\n', '\r')) or rng.random() < 0.1:
        return '"' + value.replace('"', '""') + '"'
    return value


def plain(value):
    """As a program reads it from JSON."""
    if isinstance(value, datetime.datetime):
        whole = value.isoformat(sep=' ')
        return whole.rstrip('0') if value.microsecond else whole
    return str(value) if isinstance(value, datetime.date) else value


def stored(kind, value):
    """How pyarrow stores a column, and a value as it has room in it."""
    def as_is(v):
        return v
    if kind == 'int64':
        width, signed = rng.choice([8, 16, 32, 64, 64]), rng.random() < 0.7
        low, high = (-2 ** (width - 1), 2 ** (width - 1) - 1) if signed else (0, min(2 ** width, 2 ** 63) - 1)
        return getattr(pa, f"{'' if signed else 'u'}int{width}")(), lambda v: max(low, min(high, v))
    if kind == 'float64':
        if rng.random() < 0.3:
            return pa.float32(), lambda v: struct.unpack('f', struct.pack('f', v))[0]
        return pa.float64(), as_is
    if kind == 'timestamp':
        unit = rng.choice(['ms', 'us', 'ns'])
        kept = (lambda v: v.replace(microsecond=v.microsecond // 1000 * 1000)) if unit == 'ms' else as_is
        return pa.timestamp(unit, tz=rng.choice([None, None, 'UTC', 'Europe/Zurich'])), kept
    if kind == 'utf8':
        return rng.choice([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]), as_is
    return {'bool': pa.bool_(), 'date': pa.date32()}[kind], as_is


ENCODINGS = {'bool': ['PLAIN', 'RLE'], 'int64': ['PLAIN', 'DELTA_BINARY_PACKED', 'BYTE_STREAM_SPLIT'],
             'float64': ['PLAIN', 'BYTE_STREAM_SPLIT'], 'date': ['PLAIN', 'DELTA_BINARY_PACKED'],
             'timestamp': ['PLAIN', 'DELTA_BINARY_PACKED'],
             'utf8': ['PLAIN', 'DELTA_BYTE_ARRAY', 'DELTA_LENGTH_BYTE_ARRAY']}


def write_parquet(path, names, kinds, rows):
    fields, columns = [], []
    for n, (name, kind) in enumerate(zip(names, kinds)):
        type, kept = stored(kind, value)
        all = [None if row[n] is None else kept(row[n]) for row in rows]
        fields.append(pa.field(name, type, nullable=None in all or rng.random() < 0.5))
        columns.append(pa.array(all, type))
    made = pa.table(columns, schema=pa.schema(fields))
    if rng.random() < 0.25:
        base.register('made', made)
        how = [f"codec {rng.choice(['uncompressed', 'snappy', 'gzip', 'zstd', 'lz4_raw'])}",
               f"row_group_size {rng.choice([2048, 122880])}", f"parquet_version {rng.choice(['v1', 'v2'])}"]
        base.execute(f"copy made to '{path}' (format parquet, {', '.join(how)})")
        base.unregister('made')
        return
    dictionary = rng.choice([True, False, [name for name in names if rng.random() < 0.5]])
    plain = names if dictionary is False else [] if dictionary is True else [n for n in names if n not in dictionary]
    of = {n: rng.choice(ENCODINGS[k]) for n, k in zip(names, kinds) if n in plain} if rng.random() < 0.8 else None
    int96 = rng.random() < 0.2
    if of and int96:
        of = {n: e for n, e in of.items() if not pa.types.is_timestamp(made.schema.field(n).type)}
    pq.write_table(
        made, path, row_group_size=rng.choice([7, 100, 1000, 10**6]), use_dictionary=dictionary if not of or dictionary else False,
        compression=rng.choice(['none', 'snappy', 'gzip', 'zstd', 'lz4']), data_page_version=rng.choice(['1.0', '2.0']),
        data_page_size=rng.choice([64, 1000, 1 << 20]), write_statistics=rng.random() < 0.8, column_encoding=of or None,
        write_page_checksum=rng.random() < 0.5, use_deprecated_int96_timestamps=int96,
        write_batch_size=rng.choice([3, 1024]), dictionary_pagesize_limit=rng.choice([20, 1 << 20]))


def table(nth):
    form = ['csv', 'parquet', 'tsv', 'jsonl', 'parquet'][nth % 5]
    names = [rng.choice(['id', 'k', 'price', 'a b', 'x.y', 'città', 'When']) + str(n) for n in range(rng.randint(3, 8))]
    kinds = [rng.choice(list(KINDS)) for _ in names]
    kinds[:2] = ['int64', 'utf8']
    if form == 'jsonl':
        kinds = [k if k not in ('date', 'timestamp') else 'utf8' for k in kinds]
    holes = [rng.choice([0, 0.1, 0.5]) for _ in names]
    count = rng.choice([1, 3, 60, 400, 3000])
    if form == 'parquet' and rng.random() < 0.3:
        # Pages and runs that are passed over in parts.
        count = 12000
    rows = [[None if rng.random() < hole else value(kind) for kind, hole in zip(kinds, holes)] for _ in range(count)]
    # Each type is seen.
    rows[0] = [value(kind) for kind in kinds]
    for n, kind in enumerate(kinds):
        if kind == 'float64':
            rows[0][n] = 0.25
        if kind == 'utf8':
            rows[0][n] = 'first'
        if kind == 'timestamp':
            rows[0][n] = datetime.datetime(2020, 1, 1, 12, 0, 0)
    path = f'{TREE}/t{nth}.{form}'
    end = rng.choice(['\n', '\r\n']) if form != 'jsonl' else '\n'
    if form == 'parquet':
        if rng.random() < 0.3:
            rows.sort(key=lambda row: (row[0] is None, row[0] or 0))
        write_parquet(path, names, kinds, rows)
    with open(path, 'a' if form == 'parquet' else 'w', newline='', encoding='utf-8') as file:
        if form == 'parquet':
            pass
        elif form == 'jsonl':
            for row in rows:
                some = [(n, v) for n, v in zip(names, row) if v is not None or rng.random() < 0.5]
                rng.shuffle(some) if rng.random() < 0.2 and row is not rows[0] else None
                line = json.dumps({n: plain(v) for n, v in some}, ensure_ascii=rng.random() < 0.5)
                file.write(line + end + ('\n' if rng.random() < 0.02 else ''))
        else:
            delimiter = ',' if form == 'csv' else '\t'
            lines = [delimiter.join(field(v, delimiter) for v in row) for row in [names] + rows]
            file.write(end.join(lines) + rng.choice([end, '']))
    columns = {n: KINDS[k] for n, k in zip(names, kinds)}
    if form == 'parquet':
        some = ', '.join(f'{quoted(n)}::{k} as {quoted(n)}' for n, k in columns.items())
        source = f"(select {some} from read_parquet('{path}'))"
    elif form == 'jsonl':
        source = f"read_json('{path}', format='newline_delimited', columns={json.dumps(columns, ensure_ascii=False)})".replace('"', "'")
    else:
        source = (f"read_csv('{path}', header=true, delim='{delimiter}', quote='\"', escape='\"', auto_detect=false, "
                  f"nullstr='', columns={{{', '.join(repr(n) + ': ' + repr(k) for n, k in columns.items())}}})")
    base.execute(f'create table t{nth} as select * from {source}')
    return form, names, kinds


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def literal(kind):
    if kind == 'float64':
        return f'{value(kind):.6e}'
    if kind in ('int64',):
        return str(rng.choice([value(kind), rng.randint(-3, 3)]))
    if kind == 'bool':
        return rng.choice(['true', 'false'])
    return "'" + plain_text(value(kind)).replace("'", "''") + "'"


def plain_text(value):
    return plain(value) if not isinstance(value, str) else value


def leaf(names, kinds):
    """A condition in our words and in DuckDB's."""
    n = rng.randrange(len(names))
    name, kind = quoted(names[n]), kinds[n]
    what = rng.random()
    if what < 0.15:
        both = f"{name} is {rng.choice(['', 'not '])}null"
    elif what < 0.3:
        some = [literal(kind) for _ in range(rng.randint(1, 4))] + (['null'] if rng.random() < 0.2 else [])
        both = f"{name} {rng.choice(['', 'not '])}in ({', '.join(some)})"
    elif what < 0.4 and kind != 'bool':
        both = f'{name} {rng.choice(["", "not "])}between {literal(kind)} and {literal(kind)}'
    elif what < 0.7 and kind == 'utf8':
        if rng.random() < 0.6:
            pattern = rng.choice(['B%', '%e%', '_a%', '%', 'a_b', "%'%", 'AB%', '%\n%', '%é%', '__', '%a%b%'])
            both = f"{name} {rng.choice(['', 'not '])}{rng.choice(['like', 'ilike'])} '" + pattern.replace("'", "''") + "'"
        else:
            pattern = rng.choice(['^B', 'e$', '[aeiou]{2}', '^.{3}$', 'l+|ü', '(?i)ab', '\\d', '^$', '\\s'])
            return f"{name} ~ '{pattern}'", f"regexp_matches({name}, '{pattern}')"
    elif what < 0.8:
        others = [m for m in range(len(names)) if kinds[m] == kind or {kinds[m], kind} == {'int64', 'float64'}]
        both = f"{name} {rng.choice(['=', '<>', '<', '<=', '>', '>='])} {quoted(names[rng.choice(others)])}"
    else:
        both = f"{name} {rng.choice(['=', '<>', '<', '<=', '>', '>='])} {literal(kind)}"
    return both, both


def condition(names, kinds, depth):
    if depth == 0 or rng.random() < 0.3:
        return leaf(names, kinds)
    if rng.random() < 0.2:
        ours, theirs = condition(names, kinds, depth - 1)
        return f'not ({ours})', f'not ({theirs})'
    (a, b), (c, d) = condition(names, kinds, depth - 1), condition(names, kinds, depth - 1)
    how = rng.choice(['and', 'or'])
    return f'({a}) {how} ({c})', f'({b}) {how} ({d})'


def case(nth, form, names, kinds):
    ours, theirs = condition(names, kinds, rng.randint(0, 3)) if rng.random() < 0.85 else ('', 'true')
    said = {'file': f't{nth}.{form}', 'format': form, 'where': ours}
    if rng.random() < 0.6:
        some = [rng.choice(names) for _ in range(rng.randint(1, len(names)))]
        some = list(dict.fromkeys(some)) if rng.random() < 0.8 else names
        query = f"select {', '.join(map(quoted, some))} from t{nth} where {theirs}"
        said['columns'] = ', '.join(map(quoted, some)) if some is not names or rng.random() < 0.5 else ''
        if rng.random() < 0.2:
            said['limit'] = rng.choice([0, 1, 7, 500])
            query += f" limit {said['limit']}"
        said['ordered'] = True
    else:
        by = [rng.choice(names) for _ in range(rng.randint(0, 2))]
        by = list(dict.fromkeys(by))
        makes = ['count(*)']
        for _ in range(rng.randint(0, 4)):
            n = rng.randrange(len(names))
            able = ['count', 'min', 'max'] + (['sum', 'avg'] if kinds[n] in ('int64', 'float64') else [])
            makes.append(f'{rng.choice(able)}({quoted(names[n])})')
        makes = list(dict.fromkeys(makes))
        query = f"select {', '.join([quoted(n) for n in by] + makes)} from t{nth} where {theirs}"
        if by:
            query += f" group by {', '.join(map(quoted, by))}"
        said['group'], said['agg'], said['ordered'] = ', '.join(map(quoted, by)), ', '.join(makes), False
    found = base.execute(query)
    said['rows'] = [[plain(v) for v in row] for row in found.fetchall()]
    said['query'] = query
    return said


base = duckdb.connect(config={'threads': 1, 'preserve_insertion_order': 'true'})
base.execute("set TimeZone = 'UTC'")
cases = []
for nth in range(TABLES):
    known = table(nth)
    cases += [case(nth, *known) for _ in range(CASES)]
json.dump(cases, open(f'{FOLDER}/cases.json', 'w'))
