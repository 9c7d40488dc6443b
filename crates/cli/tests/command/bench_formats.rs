//! What `nearside bench` prints for programs: fio's JSON beside fio's own and read by fio's own tools,
//! CSV, and this program's JSON by its schema.

use std::fs;
use std::path::Path;
use std::process::Command;

use nearside_conformance::needs;
use serde_json::Value;

use crate::fixture::{Ran, nearside};

/// A run of 100 ms with reads and writes, on a drive in memory; what it printed.
fn run(folder: &Path, words: &[&str]) -> Ran {
    let mut command = nearside();
    command.args(["bench", "run", "-d", "dram:8MiB", "--rw", "randrw", "--runtime", "100ms"]);
    Ran::from(command.args(words).arg("--out").arg(folder).output().unwrap())
}

/// fio's own output for such a run on a file.
fn fios(folder: &Path, format: &str) -> Value {
    let mut fio = Command::new("fio");
    fio.args(["--name=reads", "--rw=randrw", "--bs=4k", "--size=4m", "--ioengine=psync"]);
    fio.args(["--time_based", "--runtime=600ms", &format!("--output-format={format}")]);
    let out = fio.current_dir(folder).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout);
    // Notes may stand before the object.
    serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap()
}

/// What of fio's is not known here: the module `fio_json` of the load generator says so.
const UNKNOWN: [&str; 9] =
    ["time", "ctx", "majf", "minf", "usr_cpu", "sys_cpu", "iodepth_submit", "iodepth_complete", "disk_util"];
/// Objects whose names are data.
const DATA: [&str; 2] = ["job options", "bins"];

/// Each of fio's fields is here, with its type; names of those that are not.
fn missing(theirs: &Value, ours: &Value, path: &str, found: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            for (name, value) in theirs {
                let path = format!("{path}.{name}");
                match ours.get(name) {
                    _ if UNKNOWN.contains(&name.as_str()) => {}
                    None => found.push(format!("{path} is missing")),
                    Some(Value::Object(_)) if DATA.contains(&name.as_str()) && value.is_object() => {}
                    Some(ours) => missing(value, ours, &path, found),
                }
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => missing(&theirs[0], &ours[0], path, found),
        (Value::Number(theirs), Value::Number(ours)) if theirs.is_f64() == ours.is_f64() => {}
        (Value::String(_), Value::String(_)) => {}
        _ => found.push(format!("{path}: {theirs} there, {ours} here")),
    }
}

#[test]
fn fios_json_has_the_names_and_types_of_fios_own() {
    if !needs::tools("command::fios_json_has_the_names_and_types_of_fios_own", &["fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (theirs, ours) in [("json", "fio-json"), ("json+", "fio-json+")] {
        let ran = run(folder.path(), &["--iodepth", "4", "--output-format", ours]);
        let text = ran.good();
        let json: Value = serde_json::from_str(&text).unwrap();
        let mut found = Vec::new();
        missing(&fios(folder.path(), theirs), &json, "", &mut found);
        assert!(found.is_empty(), "{ours}: {found:#?}");
        assert_eq!(json["jobs"][0]["read"]["clat_ns"]["bins"].is_object(), ours.ends_with('+'));
        for unknown in UNKNOWN {
            assert!(json.get(unknown).is_none() && json["jobs"][0].get(unknown).is_none(), "{unknown}");
        }
    }
}

/// The sum of an object of percentages.
fn sum(object: &Value) -> f64 {
    object.as_object().unwrap().values().map(|part| part.as_f64().unwrap()).sum()
}

#[test]
fn fios_json_says_what_our_own_says() {
    let folder = tempfile::tempdir().unwrap();
    // In simulated time the same seed gives the same run.
    let simulated = |format: &str| {
        let mut command = nearside();
        command.args(["sim", "curve", "--media", "optane-p4800x", "--capacity", "64MiB", "--rw", "randrw"]);
        command.args(["--percentile", "90", "--loads", "2", "--depths", "1,8", "--output-format", format]);
        Ran::from(command.arg("--out").arg(folder.path()).output().unwrap())
    };
    let own = simulated("json").json();
    let text = simulated("fio-json+").good();
    assert_eq!(text, simulated("fio-json+").good());
    let fio: Value = serde_json::from_str(&text).unwrap();
    let jobs = fio["jobs"].as_array().unwrap();
    assert_eq!((jobs.len(), own.len() > 4), (own.len(), true));
    for (group, (job, own)) in jobs.iter().zip(&own).enumerate() {
        let stream = &own["streams"][0];
        assert_eq!((&job["groupid"], &job["jobname"]), (&group.into(), &stream["name"]));
        assert_eq!(&job["error"], &0);
        for (way, ours) in [("read", "reads"), ("write", "writes")] {
            let (theirs, ours) = (&job[way], &stream[ours]);
            assert_eq!(theirs["io_bytes"], ours["bytes"]);
            assert_eq!(theirs["total_ios"], ours["service"]["count"]);
            for (name, ours) in [("clat_ns", &ours["service"]), ("lat_ns", &ours["response"])] {
                let theirs = &theirs[name];
                for (name, own) in [("N", "count"), ("min", "min_ns"), ("max", "max_ns"), ("mean", "mean_ns")]
                {
                    assert_eq!(theirs[name], ours[own], "{name}");
                }
                for point in ours["percentiles"].as_array().unwrap() {
                    let name = format!("{:.6}", point["percent"].as_f64().unwrap());
                    // fio's list leaves out nothing that ours has.
                    assert_eq!(theirs["percentile"][&name], point["ns"], "{name}");
                }
                let bins = theirs["bins"].as_object().unwrap();
                assert_eq!(bins.values().map(|n| n.as_u64().unwrap()).sum::<u64>(), ours["count"]);
            }
            let [runtime, iops, ios] =
                ["runtime", "iops", "total_ios"].map(|name| theirs[name].as_f64().unwrap());
            // The time is rounded up to a millisecond.
            let ms = 1e3 * ios / iops;
            assert!(ms <= runtime + 1e-6 && runtime < ms + 1.0, "{runtime} {iops} {ios}");
        }
        let parts = ["latency_ns", "latency_us", "latency_ms"].map(|unit| sum(&job[unit]));
        assert!((parts.iter().sum::<f64>() - 100.0).abs() < 1e-6, "{parts:?}");
        // Alone, Optane's operations take microseconds; by the thousand they wait for one another.
        assert!(group > 0 || parts[1] > 99.0, "{parts:?}");
        assert!((sum(&job["iodepth_level"]) - 100.0).abs() < 1e-6);
    }
    // Closed loops: one in flight, then eight.
    assert_eq!(jobs[0]["iodepth_level"]["1"], 100.0);
    assert!(jobs[1]["iodepth_level"]["8"].as_f64().unwrap() > 99.0, "{}", jobs[1]["iodepth_level"]);
    assert_eq!(jobs[1]["job options"]["iodepth"], "8");
}

#[test]
fn fios_own_reader_of_histograms_reads_ours() {
    let tools = ["fio_jsonplus_clat2csv"];
    if !needs::tools("command::fios_own_reader_of_histograms_reads_ours", &tools) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = run(folder.path(), &["--iodepth", "2", "--output-format", "fio-json+"]).good();
    let json: Value = serde_json::from_str(&text).unwrap();
    fs::write(folder.path().join("run.json"), &text).unwrap();
    let reader = |more: &[&str]| {
        let mut command = Command::new(tools[0]);
        command.args(["run.json", "run.csv"]).args(more).current_dir(folder.path());
        Ran::from(command.output().unwrap())
    };
    reader(&[]).good();
    // Its own check of its table against the file.
    assert!(reader(&["--validate"]).good().contains("validated"));
    let table = fs::read_to_string(folder.path().join("run_job0.csv")).unwrap();
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').map(str::trim).collect();
    let column = |name: &str| names.iter().position(|n| *n == name).unwrap();
    let cumulative = column("read_clat_ns_cumulative");
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').map(str::trim).collect()).collect();
    let counted = rows.iter().rev().find_map(|row| row[cumulative].parse::<u64>().ok()).unwrap();
    assert_eq!(counted, json["jobs"][0]["read"]["clat_ns"]["N"]);
    // The median that it comes to is ours.
    let share = column("read_clat_ns_percentile");
    let median = rows.iter().find(|row| row[share].parse::<f64>().is_ok_and(|part| part >= 0.5)).unwrap();
    assert_eq!(
        median[column("nsec")].parse::<u64>().unwrap(),
        json["jobs"][0]["read"]["clat_ns"]["percentile"]["50.000000"]
    );
}

/// A line of CSV; what stands between quotes is one field.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    for (nth, part) in line.split('"').enumerate() {
        let mut pieces = if nth % 2 == 1 { vec![part] } else { part.split(',').collect() };
        *fields.last_mut().unwrap() += pieces.remove(0);
        fields.extend(pieces.into_iter().map(str::to_owned));
    }
    fields
}

#[test]
fn csv_has_a_line_for_each_run_stream_and_direction() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job.fio");
    fs::write(&job, "[global]\nruntime=100ms\nrw=randrw\n[a]\nrate_iops=2000,1000\n[b]\nbs=8k\niodepth=2\n")
        .unwrap();
    let run = |format: &str| {
        let mut command = nearside();
        command.args(["bench", "run", "-d", "dram:8MiB", "--output-format", format, "--fio-job"]);
        Ran::from(command.arg(&job).arg("--out").arg(folder.path()).output().unwrap())
    };
    let text = run("csv").good();
    let mut lines = text.lines().map(fields);
    let names = lines.next().unwrap();
    let column = |name: &str| names.iter().position(|n| *n == name).unwrap_or_else(|| panic!("{name}"));
    let rows: Vec<Vec<String>> = lines.collect();
    assert!(rows.iter().all(|row| row.len() == names.len()), "{text}");
    let kinds: Vec<_> =
        rows.iter().map(|row| (&*row[column("stream")], &*row[column("direction")])).collect();
    assert_eq!(kinds, [("a", "read"), ("a", "write"), ("b", "read"), ("b", "write")]);
    assert_eq!((&*rows[0][column("arrivals")], &*rows[0][column("depth")]), ("constant", ""));
    assert_eq!((&*rows[2][column("arrivals")], &*rows[2][column("depth")]), ("closed", "2"));
    for row in &rows {
        let number = |name: &str| row[column(name)].parse::<f64>().unwrap();
        let size = if row[column("stream")] == "a" { 4096.0 } else { 8192.0 };
        assert_eq!(number("bytes"), size * number("response_count"));
        assert_eq!((&*row[column("target")], &*row[column("errors")]), ("dram:8MiB", "0"));
        let ranks =
            ["response_min_ns", "response_p50_ns", "response_p99_9_ns", "response_max_ns"].map(number);
        assert!(ranks[0] > 0.0 && ranks.is_sorted(), "{ranks:?}");
        // Where the run is too short for an interval, its cells are empty.
        let low = &row[column("response_p50_low_ns")];
        assert!(low.is_empty() || low.parse::<f64>().unwrap() <= number("response_p50_ns"), "{low}");
    }
    // The files for people do not change with what is printed.
    assert!(folder.path().join("run.html").exists());
    let ran = Ran::from(nearside().args(["bench", "run", "--output-format", "xml"]).output().unwrap());
    assert!(ran.code == 2 && ran.err.contains("fio-json"), "{}", ran.err);
}

#[test]
fn csv_of_a_simulated_curve_says_what_its_json_says() {
    let folder = tempfile::tempdir().unwrap();
    let simulated = |format: &str| {
        let mut command = nearside();
        command.args(["sim", "curve", "--media", "optane-p4800x", "--capacity", "64MiB"]);
        command.args(["--percentile", "90", "--loads", "2", "--depths", "1", "--output-format", format]);
        Ran::from(command.arg("--out").arg(folder.path()).output().unwrap())
    };
    let (own, text) = (simulated("json").json(), simulated("csv").good());
    let mut lines = text.lines().map(fields);
    let names = lines.next().unwrap();
    let rows: Vec<Vec<String>> = lines.collect();
    assert_eq!(rows.len(), own.len());
    for (row, own) in rows.iter().zip(&own) {
        let cell = |name: &str| row[names.iter().position(|n| *n == name).unwrap()].clone();
        let response = &own["streams"][0]["reads"]["response"];
        assert_eq!(cell("response_mean_ns"), response["mean_ns"].to_string());
        assert_eq!(cell("window_ns"), own["window_ns"].to_string());
        for point in response["percentiles"].as_array().unwrap() {
            let name = format!("response_p{}", point["percent"].to_string().trim_end_matches(".0"));
            let name = name.replace('.', "_");
            assert_eq!(cell(&format!("{name}_ns")), point["ns"].to_string());
            let high = point["high_ns"].as_u64().map_or(String::new(), |ns| ns.to_string());
            assert_eq!(cell(&format!("{name}_high_ns")), high);
        }
        let ended: f64 = cell("ended_per_s").parse().unwrap();
        assert!((ended / own["throughput"].as_f64().unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(cell("date"), "");
    }
}

/// docs/run.schema.json; where it names an object's fields, an object has no others.
fn schema(strict: bool) -> jsonschema::Validator {
    fn close(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.values_mut().for_each(close);
                // What has alternatives repeats its fields in them.
                if fields.contains_key("properties")
                    && fields.contains_key("required")
                    && fields.contains_key("type")
                {
                    fields.insert("additionalProperties".into(), false.into());
                }
            }
            Value::Array(values) => values.iter_mut().for_each(close),
            _ => {}
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/run.schema.json");
    let mut schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    if strict {
        close(&mut schema);
    }
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

#[test]
fn our_json_is_as_its_schema_says() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job.fio");
    fs::write(
        &job,
        "[global]\nruntime=50ms\n[a]\nrw=randrw\nbssplit=4k/60:8k/40\nrate_iops=2000,1000\nrate_process=poisson\n\
         [b]\nrw=write\nthinktime=100\nthinktime_spin=10\n[c]\nrandom_distribution=zipf:1.2\nrw=randread\nrate_iops=10\n",
    )
    .unwrap();
    let printed = |words: &[&str]| {
        let mut command = nearside();
        command.args(words).arg("--json").arg("--out").arg(folder.path());
        let ran = Ran::from(command.output().unwrap());
        assert!(ran.code < 2, "{}", ran.err);
        ran.json()
    };
    let mut lines = printed(&["bench", "run", "-d", "dram:8MiB", "--fio-job", job.to_str().unwrap()]);
    let words = ["sim", "curve", "--media", "optane-p4800x", "--capacity", "64MiB", "--percentile", "90"];
    lines.extend(printed(&[&words[..], &["--loads", "2", "--depths", "1", "--steady-state=1ms"]].concat()));
    let words = ["bench", "run", "--iodepth", "1", "--runtime", "50ms", "-d"];
    lines.extend(printed(&[&words[..], &["faulty:after=50,times=1000000:dram:1MiB"]].concat()));
    fs::write(folder.path().join("trace.csv"), "7,h,0,Read,0,512,1\n9,h,0,Write,512,512,1\n").unwrap();
    let trace = folder.path().join("trace.csv");
    lines.extend(printed(&["bench", "replay", trace.to_str().unwrap(), "-d", "dram:1MiB"]));
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    assert!(of("run") >= 5 && of("steady") == 1 && of("trace") == 1, "{}", lines.len());
    let (open, strict) = (schema(false), schema(true));
    for line in &lines {
        let wrong: Vec<String> =
            strict.iter_errors(line).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(wrong.is_empty(), "{wrong:#?}\n{line}");
        // Fields that come later break nobody; those that are missing or of another type do.
        let mut later = line.clone();
        later["later"] = 1.into();
        assert!(open.is_valid(&later) && !strict.is_valid(&later));
    }
    let run = lines.iter().find(|line| line["type"] == "run").unwrap();
    let changed = |pointer: &str, to: Value| {
        let mut changed = run.clone();
        *changed.pointer_mut(pointer).unwrap() = to;
        open.is_valid(&changed)
    };
    assert!(changed("/window_ns", 7.into()));
    for (pointer, to) in [
        ("/window_ns", Value::from("7")),
        ("/window_ns", Value::from(-7)),
        ("/streams/0/arrivals", "now and then".into()),
        ("/plan/streams/0/workload/bs/0", serde_json::json!([4096])),
        ("/all/response/percentiles/0/low_ns", "7".into()),
        ("/machine/cpu", serde_json::json!({})),
        ("/type", "walk".into()),
    ] {
        assert!(!changed(pointer, to), "{pointer}");
    }
}
