//! What a real browser makes of a page: headless Chromium shows it at three widths, light and dark; it is
//! measured, pressed, and, where NEARSIDE_KEEP_PAGES names a folder, kept there as pictures.
//!
//! Chromium is spoken to in its own protocol (Chrome DevTools Protocol) by two pipes: what a page writes to
//! its console, what it would load, and where a pointer goes are asked and told there.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::needs;

/// Chromium without what only a window needs.
const PROGRAM: &str = "chromium-headless-shell";
/// A desk, a tablet and a telephone, in CSS pixels.
const WIDTHS: [u32; 3] = [1300, 800, 400];
/// How long an answer may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// Milliseconds in which what a pointer does has been drawn.
const SETTLED: &str = "300";
/// What is asked of a page, in the page.
const SCRIPT: &str = include_str!("browser.js");

/// A page as a browser shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Pictures.
    pub pictures: usize,
    /// Tables.
    pub tables: usize,
}

/// Opens a page at all widths, and in the dark; `None` where the machine has no Chromium (the test is then
/// left out by name).
/// Panics with what is wrong with the page.
pub fn shows(test: &str, html: &str, folder: &Path) -> Option<Shown> {
    let page = folder.join("page.html");
    std::fs::write(&page, html).unwrap();
    shows_at(test, &format!("file://{}", page.display()), folder, &[])
}

/// The same of a page at an address, which may ask the server that it is of. One that fills itself says when
/// it is `filled`; then it has these words. What the browser needs lies in the folder.
/// Panics with what is wrong with the page.
pub fn shows_at(test: &str, page: &str, folder: &Path, words: &[&str]) -> Option<Shown> {
    if !needs::tools(test, &[PROGRAM]) {
        return None;
    }
    let mut browser = Browser::start(folder);
    if page.starts_with("http:") {
        browser.own = page.to_owned();
    }
    let name: String = test.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let mut shown = Vec::new();
    // The dark first: the switch is pressed later, and the page remembers that.
    for (width, scheme) in [(1300, "dark")].into_iter().chain(WIDTHS.map(|width| (width, "light"))) {
        browser.open(page, width, scheme);
        let text = browser.ask("text", "");
        for word in words {
            assert!(text.as_str().unwrap().contains(word), "{word:?} is not in {text}");
        }
        for what in ["layout", "drawn"] {
            none_found(&browser.ask(what, ""), &format!("{what} at {width} pixels, {scheme}"));
        }
        let colours = browser.ask("state", "0");
        let bright = ["ground", "ink"].map(|name| brightness(colours[name].as_str().unwrap()));
        let dark = scheme == "dark";
        assert!((bright[0] < bright[1]) == dark, "{scheme} at {width} pixels: {colours}");
        let count = browser.ask("count", "");
        let number = |name: &str| count[name].as_u64().unwrap() as usize;
        shown.push(Shown { pictures: number("pictures"), tables: number("tables") });
        if let Some(folder) = std::env::var_os("NEARSIDE_KEEP_PAGES") {
            let dark = if dark { "-dark" } else { "" };
            browser.keep(&Path::new(&folder).join(format!("{name}-{width}{dark}.png")), width);
        }
        if (width, scheme) == (WIDTHS[0], "light") {
            none_found(&browser.ask("data", ""), "the numbers behind the pictures");
            press(&mut browser);
        }
        assert!(browser.complaints.is_empty(), "at {width} pixels, {scheme}: {:#?}", browser.complaints);
    }
    assert!(shown.iter().all(|s| *s == shown[0]), "{shown:?}");
    Some(shown[0])
}

/// The sum of a colour's parts, "rgb(1, 2, 3)".
fn brightness(colour: &str) -> f64 {
    let parts = colour.split(|c: char| !c.is_ascii_digit() && c != '.').filter(|part| !part.is_empty());
    parts.take(3).map(|part| part.parse::<f64>().unwrap()).sum()
}

fn none_found(found: &Value, where_: &str) {
    let found = found.as_array().unwrap();
    assert!(found.is_empty(), "{where_}: {found:#?}");
}

/// A legend hides a series and shows it, a point says its values, a table's head sorts, light becomes dark.
fn press(browser: &mut Browser) {
    let before = browser.ask("state", "0");
    let changed = |name: &str, after: &Value| before[name] != after[name];
    if browser.pointer("legend", true) {
        let after = browser.ask("state", SETTLED);
        assert_eq!(after["hidden"], 1, "a press on the legend hides no series: {after}");
        let less = after["visible"].as_u64() < before["visible"].as_u64();
        let again = browser.pointer("legend", true).then(|| browser.ask("state", SETTLED)).unwrap();
        assert!(again["hidden"] == 0 && !changed("visible", &again), "nor shows it again: {again}");
        assert!(less || before["visible"] == 0, "nothing has gone: {after}");
    }
    if browser.pointer("point", false) {
        let after = browser.ask("state", SETTLED);
        let words = after["hover"].as_str().unwrap();
        assert!(words.chars().any(|c| c.is_ascii_digit()), "a point says nothing: {after}");
    }
    if browser.pointer("head", true) {
        let up = browser.ask("state", SETTLED);
        assert_eq!(up["sort"], "ascending");
        browser.pointer("head", true);
        let down = browser.ask("state", SETTLED);
        assert_eq!(down["sort"], "descending");
        let rows = |state: &Value| -> Vec<String> {
            state["rows"].as_array().unwrap().iter().map(|row| row.as_str().unwrap().to_owned()).collect()
        };
        let (mut first, mut all) = (rows(&up), rows(&before));
        let mut last = rows(&down);
        assert_eq!(first.first(), last.last(), "{first:?} {last:?}");
        for list in [&mut first, &mut last, &mut all] {
            list.sort();
        }
        assert!(first == all && last == all, "sorting has lost rows");
    }
    assert!(browser.pointer("theme", true), "there is no switch");
    let after = browser.ask("state", SETTLED);
    assert!(changed("ground", &after), "light does not become dark: {after}");
    browser.pointer("theme", true);
}

/// A browser with one page.
struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    calls: u64,
    /// What the page wrote to its console, and what it would have loaded.
    complaints: Vec<String>,
    loaded: bool,
    /// The server that the page is of.
    own: String,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    fn start(folder: &Path) -> Browser {
        // Chromium takes commands on descriptor 3 and answers on 4; its own output goes nowhere.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null", PROGRAM])
            .args(["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--remote-debugging-pipe", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (send, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0) {
                let Ok(message) = message else { return };
                if send.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let complaints = Vec::new();
        let (loaded, own) = (false, "about:".to_owned());
        let mut browser = Browser { child, to, from, session: None, calls: 0, complaints, loaded, own };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Calls a method; its result.
    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.clone().into();
        }
        let sent = self.to.write_all(format!("{message}\0").as_bytes()).and_then(|()| self.to.flush());
        sent.unwrap_or_else(|e| panic!("{method}: {e}"));
        loop {
            let message = self.next(method);
            if message["id"] == self.calls {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
        }
    }

    /// The next message; what it says of the page is noted.
    fn next(&mut self, waiting_for: &str) -> Value {
        let message = self.from.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{waiting_for}: {e}"));
        let params = &message["params"];
        let complaint = match message["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled"
                if ["error", "warning", "assert"].iter().any(|t| params["type"] == *t) =>
            {
                Some(params["args"].to_string())
            }
            "Log.entryAdded" if params["entry"]["level"] == "error" => Some(params["entry"].to_string()),
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                let own =
                    ["file:", "data:", "blob:", "about:", &self.own].iter().any(|own| url.starts_with(own));
                (!own).then(|| format!("it loads {url}"))
            }
            "Page.loadEventFired" => {
                self.loaded = true;
                None
            }
            _ => None,
        };
        self.complaints.extend(complaint);
        message
    }

    /// Shows a page at a width.
    fn open(&mut self, page: &str, width: u32, scheme: &str) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &features);
        self.loaded = false;
        self.call("Page.navigate", &json!({ "url": page }));
        while !self.loaded {
            self.next("the page");
        }
        self.evaluate(SCRIPT);
    }

    fn evaluate(&mut self, script: &str) -> Value {
        let params = json!({ "expression": script, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", &params);
        assert!(answer["exceptionDetails"].is_null(), "{script}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// What the page says to one of the script's questions.
    fn ask(&mut self, what: &str, of: &str) -> Value {
        let script = format!("Promise.resolve(owed.{what}({of})).then(JSON.stringify)");
        let text = self.evaluate(&script);
        serde_json::from_str(text.as_str().unwrap_or_else(|| panic!("{what}: {text}"))).unwrap()
    }

    /// Moves the pointer onto something, and presses; whether there is such a thing.
    fn pointer(&mut self, what: &str, press: bool) -> bool {
        let place = self.ask("target", &format!("'{what}'"));
        let [x, y] = [&place[0], &place[1]];
        if x.is_null() {
            return false;
        }
        let kinds: &[&str] =
            if press { &["mouseMoved", "mousePressed", "mouseReleased"] } else { &["mouseMoved"] };
        for kind in kinds {
            let button = if *kind == "mouseMoved" { "none" } else { "left" };
            let event = json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", &event);
        }
        true
    }

    /// Keeps a picture of the page, of at most some screens.
    fn keep(&mut self, path: &Path, width: u32) {
        const MOST: f64 = 14_000.0;
        let size = self.call("Page.getLayoutMetrics", &json!({}));
        let height = size["cssContentSize"]["height"].as_f64().unwrap().min(MOST);
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let how = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let picture = self.call("Page.captureScreenshot", &how);
        let bytes = base64::engine::general_purpose::STANDARD.decode(picture["data"].as_str().unwrap());
        std::fs::write(path, bytes.unwrap()).unwrap();
    }
}
