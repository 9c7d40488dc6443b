//! The file of a server, made to say what is served now: what differs is changed where it stands, and all
//! else stays as it is, with comments and order. A file is replaced whole or not at all.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use toml::{Table as Values, Value};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, TableLike};

use super::plan::Plan;
use crate::logs;

/// A plan as a new file.
///
/// # Errors
/// In words, where it cannot be said as TOML.
pub fn new(plan: &Plan) -> Result<String, String> {
    toml::to_string(plan).map_err(|e| e.to_string())
}

/// Makes the file of a server say what it serves now, but for what waits for a restart there. Whether
/// anything had to be changed.
///
/// # Errors
/// In words: it has a fault, or cannot be read or written. Then it is as it was.
pub fn into(path: &Path, running: &Plan) -> Result<bool, String> {
    let failed =
        |e: &dyn std::fmt::Display| format!("{}: {}", path.display(), logs::redacted(&e.to_string()));
    let text = fs::read_to_string(path).map_err(|e| failed(&e))?;
    let said = Plan::parsed(path, &text)?;
    let due = said.following(running);
    let values = |plan: &Plan| Values::try_from(plan).map_err(|e| failed(&e));
    let (was, now) = (values(&said)?, values(&due)?);
    if was == now {
        return Ok(false);
    }
    let mut document: DocumentMut = text.parse().map_err(|e| failed(&e))?;
    merge(document.as_table_mut(), &was, &now);
    let text = document.to_string();
    // It has to say exactly that.
    if values(&Plan::parsed(path, &text)?)? != now {
        return Err(failed(
            &"what is served cannot be said in this file: write it by hand (nearside control show)",
        ));
    }
    write(path, &text)?;
    Ok(true)
}

/// What tells one table of a list from another: the keys of the first of these that it has all of.
const KEYS: [&[&str]; 4] = [&["nqn"], &["nsid"], &["socket"], &["listen", "ana-state"]];

fn named(value: impl Fn(&str) -> Option<String>) -> Option<String> {
    KEYS.iter()
        .find_map(|keys| keys.iter().map(|key| value(key)).collect::<Option<Vec<String>>>())
        .map(|of| of.join(" "))
}

/// The name of a table in a list.
fn name(table: &Values) -> Option<String> {
    named(|key| table.get(key).map(ToString::to_string))
}

fn name_in(table: &dyn TableLike) -> Option<String> {
    named(|key| {
        let item = table.get(key)?;
        let text = item.as_str().map(|text| Value::String(text.to_owned()));
        text.or_else(|| item.as_integer().map(Value::Integer)).map(|value| value.to_string())
    })
}

/// The tables of a list, where all have names.
fn tables(value: Option<&Value>) -> Option<Vec<&Values>> {
    let list = value?.as_array()?;
    let all: Option<Vec<&Values>> = list.iter().map(Value::as_table).collect();
    all.filter(|all| all.iter().all(|table| name(table).is_some()))
}

/// A value as it stands in a file.
fn written(key: &str, value: &Value) -> Item {
    let text = toml::to_string(&Values::from_iter([(key.to_owned(), value.clone())])).unwrap_or_default();
    let mut document: DocumentMut = text.parse().unwrap_or_default();
    unplaced(document.as_table_mut());
    document.remove(key).unwrap_or_default()
}

/// Has a table and those in it stand behind what they are put behind, not where they stood in their own text.
fn unplaced(table: &mut Table) {
    table.set_position(None);
    for (_, item) in table.iter_mut() {
        match item {
            Item::Table(table) => unplaced(table),
            Item::ArrayOfTables(list) => list.iter_mut().for_each(unplaced),
            Item::None | Item::Value(_) => {}
        }
    }
}

/// Changes a table of a file from what it says to what it is to say.
fn merge(table: &mut dyn TableLike, was: &Values, now: &Values) {
    for key in was.keys().filter(|key| !now.contains_key(*key)) {
        table.remove(key);
    }
    for (key, value) in now.iter().filter(|(key, value)| was.get(*key) != Some(value)) {
        let before = tables(was.get(key)).unwrap_or_default();
        match (tables(Some(value)), table.get_mut(key)) {
            (Some(after), Some(Item::ArrayOfTables(list))) if !after.is_empty() => {
                merge_list(list, &before, &after)
            }
            (Some(after), Some(Item::Value(toml_edit::Value::Array(list)))) => {
                merge_inline(list, &before, &after)
            }
            (_, Some(Item::Value(there))) => {
                // Beside what is said of it.
                let decor = there.decor().clone();
                if let Item::Value(mut value) = written(key, value) {
                    *value.decor_mut() = decor;
                    *there = value;
                }
            }
            _ => _ = table.insert(key, written(key, value)),
        }
    }
}

fn changes<'a>(
    before: &[&'a Values],
    after: &[&'a Values],
    of: &str,
) -> Option<(Option<&'a Values>, &'a Values)> {
    let find = |all: &[&'a Values]| all.iter().copied().find(|table| name(table).as_deref() == Some(of));
    Some((find(before), find(after)?))
}

fn merge_list(list: &mut ArrayOfTables, before: &[&Values], after: &[&Values]) {
    let mut there = Vec::new();
    list.retain(|table| name_in(table).is_some_and(|name| changes(before, after, &name).is_some()));
    for table in list.iter_mut() {
        let Some(name) = name_in(table) else { continue };
        if let Some((Some(was), now)) = changes(before, after, &name) {
            merge(table, was, now);
        }
        there.push(name);
    }
    for new in after.iter().filter(|table| name(table).is_some_and(|name| !there.contains(&name))) {
        let text = toml::to_string(new).unwrap_or_default();
        let mut document: DocumentMut = text.parse().unwrap_or_default();
        let mut table: Table = std::mem::take(document.as_table_mut());
        unplaced(&mut table);
        table.decor_mut().set_prefix("\n");
        list.push(table);
    }
}

fn merge_inline(list: &mut Array, before: &[&Values], after: &[&Values]) {
    let mut there = Vec::new();
    list.retain(|value| {
        let name = value.as_inline_table().and_then(|table| name_in(table));
        name.is_some_and(|name| changes(before, after, &name).is_some())
    });
    for value in list.iter_mut() {
        let Some(table) = value.as_inline_table_mut() else { continue };
        let Some(name) = name_in(table) else { continue };
        if let Some((Some(was), now)) = changes(before, after, &name) {
            merge(table, was, now);
        }
        there.push(name);
    }
    for new in after.iter().filter(|table| name(table).is_some_and(|name| !there.contains(&name))) {
        let text = toml::to_string(new).unwrap_or_default();
        let mut document: DocumentMut = text.parse().unwrap_or_default();
        list.push(std::mem::take(document.as_table_mut()).into_inline_table());
    }
}

/// Replaces a file, or makes it; what it was, and who may do what with it, stays until all is there.
///
/// # Errors
/// In words, with the file.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    replace(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    // The file itself, where the path is a link to it.
    let path = match path.canonicalize() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => std::path::absolute(path)?,
        found => found?,
    };
    let before = match fs::metadata(&path) {
        Ok(there) => Some(there),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // Threads of this process may each write it.
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let (process, nth) = (std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed));
    let beside = Beside(folder.join(format!(".{}.{process}.{nth}", name.display())));
    // One of the same number may have been killed in the middle.
    let _ = fs::remove_file(&beside.0);
    let mut file = File::options().write(true).create_new(true).open(&beside.0)?;
    if let Some(there) = before {
        file.set_permissions(Permissions::from_mode(there.mode() & 0o7777))?;
        let now = file.metadata()?;
        if (now.uid(), now.gid()) != (there.uid(), there.gid()) {
            fchown(&file, Some(there.uid()), Some(there.gid()))?;
        }
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside.0, &path)?;
    File::open(folder)?.sync_all()
}

/// A file that goes again, unless it has got another name.
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"# Two disks.
listen = ["127.0.0.1:4420"] # here only

[[subsystem]]
# The first.
nqn = 'nqn.2026-11.example:a'   # its name
allow-hosts = [
    "nqn.2026-11.example:web", # the web server
]

[[subsystem.namespace]]
nsid = 1                        # golden
store = "file:disk.img"

[[subsystem.namespace]]
nsid = 2
store = "dram:1MiB"

[[subsystem]]
nqn = "nqn.2026-11.example:b"
namespace = [
    { nsid = 1, store = "dram:1MiB" }, # small
]
"#;

    fn at(folder: &Path) -> PathBuf {
        let path = folder.join("serve.toml");
        fs::write(&path, FILE).unwrap();
        path
    }

    #[test]
    fn what_differs_is_changed_and_all_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = at(folder.path());
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink("serve.toml", &link).unwrap();
        let mut plan = Plan::parsed(&path, FILE).unwrap();
        assert_eq!(into(&link, &plan), Ok(false));
        let more: Plan = toml::from_str(
            "subsystem = [{ nqn = 'nqn.2026-11.example:c', namespace = [{ nsid = 9, store = 'dram:2MiB' }] }]",
        )
        .unwrap();
        plan.listen.push("127.0.0.2".into());
        plan.threads = 7;
        plan.log = Some(crate::serve::plan::Level::try_from("info".to_owned()).unwrap());
        let host: crate::serve::plan::HostPlan =
            toml::from_str("nqn = 'nqn.2026-11.example:db'\nidentity = 'trust'").unwrap();
        plan.subsystem[0].host.push(host);
        plan.subsystem[0].namespace.remove(1);
        plan.subsystem[0].namespace.extend(more.subsystem[0].namespace.clone());
        plan.subsystem[1].namespace.extend(more.subsystem[0].namespace.clone());
        plan.subsystem.extend(more.subsystem);
        assert_eq!(into(&link, &plan), Ok(true));
        let text = fs::read_to_string(&path).unwrap();
        for kept in [
            "# Two disks.\n",
            "# here only\n",
            "# The first.\nnqn = 'nqn.2026-11.example:a'   # its name\n",
            "    \"nqn.2026-11.example:web\", # the web server\n",
            "nsid = 1                        # golden\nstore = \"file:disk.img\"\n",
            "# small\n",
        ] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
        assert!(!text.contains("nsid = 2") && !text.contains("threads"), "{text}");
        // What waits for a restart is the file's.
        plan.threads = 1;
        let now = Plan::parsed(&path, &text).unwrap();
        assert_eq!(new(&now), new(&plan));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert_eq!(into(&path, &plan), Ok(false));
        // All gone.
        plan.subsystem[0].namespace.clear();
        plan.subsystem[0].host.clear();
        plan.subsystem.truncate(1);
        assert_eq!(into(&path, &plan), Ok(true));
        assert_eq!(new(&Plan::parsed(&path, &fs::read_to_string(&path).unwrap()).unwrap()), new(&plan));
        plan.subsystem.clear();
        assert_eq!(into(&path, &plan), Ok(true));
    }

    #[test]
    fn a_file_with_a_fault_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = at(folder.path());
        let plan = Plan::parsed(&path, FILE).unwrap();
        let bad = FILE.replace("nsid = 2", "nside = 2");
        fs::write(&path, &bad).unwrap();
        assert!(into(&path, &plan).unwrap_err().contains("nside"));
        assert_eq!(fs::read_to_string(&path).unwrap(), bad);
        assert!(into(&folder.path().join("none"), &plan).unwrap_err().contains("none: No such file"));
    }
}
