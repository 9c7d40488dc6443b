//! The file's documents hold: its schema has the keys that are read, no fewer and no more, with what holds
//! without them; the tables of docs/SERVE.md are the schema's; the example says every key.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::check;
use super::plan::{ComputePlan, FunctionPlan, HostPlan, NamespacePlan, Plan, SubsystemPlan};
use super::ports::PortPlan;

fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(document(name)).unwrap()
}

fn schema() -> Value {
    serde_json::from_str(&text("serve.schema.json")).unwrap()
}

fn table<'a>(schema: &'a Value, name: &str) -> &'a Value {
    if name == "file" { schema } else { &schema["$defs"][name] }
}

const NAMESPACE: &str = "nsid = 1\nstore = 'dram:1MiB'";
const NAME: &str = "nqn = 'nqn.2026-11.example:a'";

/// The keys that are read where a `T` stands: what is said where one is none of them.
fn keys<T: DeserializeOwned>() -> BTreeSet<String> {
    let error = toml::from_str::<T>("no-key = 1").err().unwrap();
    let expected = error.message().split_once("expected one of ").or(error.message().split_once("expected "));
    let list = expected.unwrap_or_else(|| panic!("{error}")).1;
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The schema has these keys, and of each that needs none what holds without it.
fn agrees<T: DeserializeOwned + Serialize>(name: &str, least: &str) {
    let schema = schema();
    let table = table(&schema, name);
    let properties = table["properties"].as_object().unwrap();
    let there: BTreeSet<String> = properties.keys().cloned().collect();
    assert_eq!(there, keys::<T>(), "{name}");
    let required: BTreeSet<&str> =
        table["required"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
    let least: T = toml::from_str(least).unwrap();
    let held = serde_json::to_value(toml::Table::try_from(&least).unwrap()).unwrap();
    for (key, property) in properties.iter().filter(|(key, _)| !required.contains(key.as_str())) {
        assert_eq!(held.get(key), property.get("default"), "{name}: {key}");
    }
}

#[test]
fn the_schema_has_the_keys_that_are_read_and_what_holds_without_them() {
    agrees::<Plan>("file", &format!("[[subsystem]]\n{NAME}\n[[subsystem.namespace]]\n{NAMESPACE}"));
    agrees::<SubsystemPlan>("subsystem", &format!("{NAME}\n[[namespace]]\n{NAMESPACE}"));
    agrees::<HostPlan>("host", NAME);
    agrees::<NamespacePlan>("namespace", NAMESPACE);
    agrees::<ComputePlan>("compute", "nsid = 3\nmemory-nsid = 2\nmemory = '4KiB'");
    agrees::<PortPlan>("port", "listen = 'a'\nana-state = 'change'");
    agrees::<FunctionPlan>("vfio-user", "socket = 'a'");
}

/// What can stand where a property does.
fn values(schema: &Value, property: &Value) -> String {
    let words = |list: &Value| {
        list.as_array().unwrap().iter().map(|word| format!("`{word}`").replace('"', "")).collect::<Vec<_>>()
    };
    if let Some(name) = property["$ref"].as_str() {
        let of = &schema["$defs"][name.rsplit('/').next().unwrap()];
        return of["title"].as_str().unwrap().to_owned();
    }
    match (property["type"].as_str(), property.get("enum")) {
        (_, Some(list)) => words(list).join(", "),
        (Some("array"), _) => {
            let items = values(schema, &property["items"]);
            if items.starts_with("[[") { format!("tables `{items}`") } else { format!("list: {items}") }
        }
        (Some("integer"), _) => format!("{} to {}", property["minimum"], property["maximum"]),
        (Some("boolean"), _) => "`true`, `false`".into(),
        (kind, _) => {
            assert_eq!(kind, Some("string"), "{property}");
            "text".into()
        }
    }
}

fn rows(schema: &Value, name: &str) -> String {
    let table = table(schema, name);
    let required = table["required"].as_array().unwrap();
    let mut rows = String::from("| key | values | without it | meaning |\n| --- | --- | --- | --- |\n");
    let is_required = |key: &str| required.contains(&Value::from(key));
    let mut all: Vec<_> = table["properties"].as_object().unwrap().iter().collect();
    all.sort_by_key(|(key, _)| (!is_required(key), *key));
    for (key, property) in all {
        let without = match property.get("default") {
            _ if is_required(key) => "a fault".into(),
            None => String::new(),
            Some(value) => format!("`{value}`").replace('"', ""),
        };
        let (values, meaning) = (values(schema, property), property["description"].as_str().unwrap());
        rows.push_str(&format!("| `{key}` | {values} | {without} | {meaning} |\n"));
    }
    rows
}

/// `NEARSIDE_BLESS=1` writes them anew.
#[test]
fn the_tables_are_the_schemas() {
    let (schema, there) = (schema(), text("SERVE.md"));
    let mut due = String::new();
    let mut rest = there.as_str();
    let mut tables = 0;
    while let Some((before, after)) = rest.split_once("<!-- keys: ") {
        let (name, after) = after.split_once(" -->\n").unwrap();
        let (_, after) = after.split_once("<!-- end -->").unwrap();
        due.push_str(&format!("{before}<!-- keys: {name} -->\n{}<!-- end -->", rows(&schema, name)));
        (rest, tables) = (after, tables + 1);
    }
    due.push_str(rest);
    assert_eq!(tables, 7);
    if std::env::var_os("NEARSIDE_BLESS").is_some() {
        return std::fs::write(document("SERVE.md"), due).unwrap();
    }
    assert_eq!(there, due, "NEARSIDE_BLESS=1 writes docs/SERVE.md anew");
}

/// The keys that a table of a file says, and the tables in it say.
fn said(schema: &Value, name: &str, value: &Value, all: &mut BTreeSet<(String, String)>) {
    for (key, value) in value.as_object().unwrap() {
        all.insert((name.to_owned(), key.clone()));
        if schema["$defs"].get(key).is_some_and(|of| of.get("properties").is_some()) {
            value.as_array().unwrap().iter().for_each(|one| said(schema, key, one, all));
        }
    }
}

#[test]
fn the_example_is_read_without_fault_and_says_every_key() {
    let example = text("serve.example.toml");
    let plan: Plan = toml::from_str(&example).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(check::of_plan(&plan), Vec::<String>::new());
    let schema = schema();
    let value = serde_json::to_value(toml::from_str::<toml::Table>(&example).unwrap()).unwrap();
    let mut all = BTreeSet::new();
    said(&schema, "file", &value, &mut all);
    for name in ["file", "subsystem", "host", "namespace", "compute", "port", "vfio-user"] {
        for key in table(&schema, name)["properties"].as_object().unwrap().keys() {
            assert!(all.contains(&(name.to_owned(), key.clone())), "{name}: {key}");
        }
    }
}

/// Whether the reader takes a file, and the schema.
fn taken() -> impl Fn(&str) -> (bool, bool) {
    let schema = schema();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    move |text| {
        let value = serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap();
        let plan = toml::from_str::<Plan>(text);
        (plan.is_ok_and(|plan| check::of_plan(&plan).is_empty()), validator.is_valid(&value))
    }
}

/// What is a file to the one is one to the other, as far as a schema can say it.
#[test]
fn the_schema_and_the_reader_take_and_refuse_the_same() {
    let both = taken();
    let example = text("serve.example.toml");
    let least = format!("[[subsystem]]\n{NAME}\n[[subsystem.namespace]]\n{NAMESPACE}\n");
    let changed = |from: &str, to: &str| {
        assert!(example.contains(from), "{from}");
        example.replacen(from, to, 1)
    };
    for text in [
        example.clone(),
        least.clone(),
        changed("\"squash 1000:1000\"", "\"refuse\""),
        changed("near-data-threads = 1 ", "near-data-threads = 0 "),
        changed("block-size = 512", "block-size = 4096"),
        changed("\"trapped\"", "\"mapped\""),
        changed("namespaces = [2]", "namespaces = []"),
        changed("\"ffdhe3072\"", "\"null\""),
        changed("controller-key-file = \"disks.key\"", ""),
        changed("log = \"info\"", "log = \"off\""),
        changed("bandwidth = \"500MiB\"", "bandwidth = \"0007k\""),
        changed("name = \"disks\"", ""),
    ] {
        assert_eq!(both(&text), (true, true), "{text}");
    }
    for (from, to) in [
        ("threads = 2", "threads = 17"),
        ("threads = 2", "threads = 0"),
        ("threads = 2", "threads = \"2\""),
        ("near-data-threads = 1", "near-data-threads = -1"),
        ("near-data-threads = 1", "near-data-threads = 17"),
        ("log = \"info\"", "log = \"loud\""),
        ("log = \"info\"", "log = \"INFO\""),
        ("listen = [\"127.0.0.1:4420\"]", "listen = \"127.0.0.1:4420\""),
        ("control = ", "kontrol = "),
        ("nqn = \"nqn.2026-11.example:disks\"", ""),
        ("\"nqn.2026-11.example:disks\"", "\"disks\""),
        ("\"nqn.2026-11.example:web\"", "\"web\""),
        ("\"EXAMPLE1\"", "\"\""),
        ("\"EXAMPLE1\"", "\"A SERIAL NUMBER THAT IS TOO LONG\""),
        ("\"EXAMPLE1\"", "\"\u{e9}\""),
        ("\"squash-root\"", "\"squash\""),
        ("\"squash-root\"", "\"believe\""),
        ("nsid = 1\n", ""),
        ("nsid = 1\n", "nsid = 0\n"),
        ("nsid = 1\n", "nsid = 1025\n"),
        ("store = \"file:disk.img\"\n", ""),
        ("block-size = 512", "block-size = 1024"),
        ("read-only = true", "read-only = 1"),
        ("\"trapped\"", "\"odd\""),
        ("socket = \"vm1.sock\"\n", ""),
        ("namespaces = [2]", "namespaces = [0]"),
        ("threads = 1\n", "threads = 99\n"),
        ("identity = \"trust\"", "trust = true"),
        ("\"sha-384\"", "\"sha-1\""),
        ("\"ffdhe3072\"", "\"ffdhe1024\""),
        ("[\"ffdhe2048\", \"ffdhe3072\"]", "[]"),
        ("open = false", "open = 0"),
        ("programs = true ", "programs = 'yes' "),
        ("rules = false", "rules = 'yes'"),
        ("kernel-tls = false", "kernel-tls = 'yes'"),
        ("iops = 20000", "iops = 0"),
        ("iops = 20000", "iops = 1000000001"),
        ("bandwidth = \"500MiB\"", "bandwidth = \"0\""),
        ("bandwidth = \"500MiB\"", "bandwidth = \"1.5MiB\""),
        ("bandwidth = \"500MiB\"", "bandwidth = 5"),
        ("near-data-cpu = 100", "near-data-cpu = 1601"),
        ("ana-state = \"inaccessible\"", "ana-state = \"optimised\""),
        ("ana-groups = [2]", "ana-groups = [129]"),
        ("ana-groups = [2]", "ana-groups = 2"),
        ("ana-group = 2", "ana-group = 0"),
        ("name = \"disks\"", "name = 1"),
        ("key-file = \"web.key\"", "key-file = 1"),
    ] {
        assert_eq!(both(&changed(from, to)), (false, false), "{to}");
    }
    assert_eq!(both("threads = 1\n"), (false, false));
    assert_eq!(both(&least.replace("[[subsystem.namespace]]\n", "")), (false, false));
}

/// The same of a compute namespace.
#[test]
fn the_schema_and_the_reader_refuse_the_same_memory() {
    let (both, example) = (taken(), text("serve.example.toml"));
    for (from, to) in [
        ("memory = \"64MiB\"", "memory = 64"),
        ("memory = \"64MiB\"", "memory = \"0\""),
        ("memory = \"64MiB\"", ""),
        ("memory-nsid = 3", "memory-nsid = 0"),
        ("nsid = 4\n", "nsid = 1025\n"),
    ] {
        assert!(example.contains(from), "{from}");
        assert_eq!(both(&example.replacen(from, to, 1)), (false, false), "{to}");
    }
}

/// Who may come to an address that others reach has to be said, by one of three words.
#[test]
fn an_address_beyond_this_machine_needs_a_word() {
    let faults = |listen: &str, top: &str, more: &str| {
        let text = format!(
            "listen = ['{listen}']\n{top}\n[[subsystem]]\n{NAME}\n{more}\n[[subsystem.namespace]]\n{NAMESPACE}"
        );
        check::of_plan(&toml::from_str(&text).unwrap())
    };
    let host = "host = [{nqn = 'nqn.2026-11.example:h', key-file = 'k'}]";
    for listen in ["0.0.0.0", "[::]:4420", "192.0.2.1:1"] {
        let open = faults(listen, "", "");
        assert!(open.len() == 1 && open[0].contains("may have nqn.2026-11.example:a"), "{open:?}");
        for (top, more) in [("open = true", ""), ("", "allow-hosts = []"), ("", host)] {
            assert_eq!(faults(listen, top, more), Vec::<String>::new());
        }
        // A name that is not proved.
        assert_eq!(faults(listen, "", &host.replace("key-file = 'k'", "identity = 'trust'")).len(), 1);
    }
    for listen in ["127.0.0.7", "[::1]:4420", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(faults(listen, "", ""), Vec::<String>::new());
    }
    let alone = faults("127.0.0.1", "", &host.replace("key-file", "controller-key-file"));
    assert!(alone.len() == 1 && alone[0].ends_with("controller-key-file is beside key-file"), "{alone:?}");
}

/// A compute namespace needs the word for programs, a number of its own, and memory in pages.
#[test]
fn a_compute_namespace_needs_programs_and_memory() {
    let faults = |programs: bool, nsid: u32, memory: &str| {
        let text = format!(
            "programs = {programs}\n[[subsystem]]\n{NAME}\n[[subsystem.namespace]]\n{NAMESPACE}\n\
             [[subsystem.compute]]\nnsid = {nsid}\nmemory-nsid = 2\nmemory = '{memory}'\n"
        );
        check::of_plan(&toml::from_str(&text).unwrap())
    };
    assert_eq!(faults(true, 3, "4KiB"), Vec::<String>::new());
    assert_eq!(faults(true, 1024, "1GiB"), Vec::<String>::new());
    for (found, fault) in [
        (faults(false, 3, "4KiB"), "a compute namespace runs programs"),
        (faults(true, 2, "4KiB"), "namespace 2 is there more than once"),
        (faults(true, 1, "4KiB"), "namespace 1 is there more than once"),
        (faults(true, 1025, "4KiB"), "namespace 1025 of nqn.2026-11.example:a: it can be"),
        (faults(true, 3, "4097"), "memory of 4097 bytes"),
        (faults(true, 3, "2GiB"), "memory of 2147483648 bytes"),
    ] {
        assert!(found.len() == 1 && found[0].contains(fault), "{fault}: {found:?}");
    }
}

/// Every fault, in one go.
#[test]
fn all_faults_are_said() {
    let text = "listen = ['127.0.0.1:4420', '127.0.0.1', '127.0.0.1:99999']\nthreads = 17\ncontrol = '/run/a'\n\
                [[subsystem]]\nnqn = 'a'\nhost = [{nqn = 'b', identity = 'trust'}]\nvfio-user = [{socket = '/run/a'}]\n\
                [[subsystem.namespace]]\nnsid = 1\nstore = 'x'\nshared-image = true\n\
                [[subsystem.namespace]]\nnsid = 1\nstore = 'y'\nread-only = true\nlog-writes = 'z'\n";
    let plan: Plan = toml::from_str(text).unwrap();
    let faults = check::of_plan(&plan);
    for fault in [
        "17 threads",
        "address 127.0.0.1:4420 is there more than once",
        "\"127.0.0.1:99999\": ",
        "socket /run/a is there more than once",
        "\"a\": an NQN begins with",
        "\"b\": an NQN begins with",
        "a: namespace 1 is there more than once",
        "namespace 1 of a: shared-image is for a namespace that is read-only",
        "namespace 1 of a: log-writes is for a namespace that is written",
    ] {
        assert_eq!(faults.iter().filter(|found| found.contains(fault)).count(), 1, "{fault}: {faults:#?}");
    }
    assert_eq!(faults.len(), 9, "{faults:#?}");
}
