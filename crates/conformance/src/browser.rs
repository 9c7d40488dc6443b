//! What a real browser makes of a page: headless Chromium lays it out at two widths, and a script,
//! added to a copy of the page, measures it.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::needs;

/// Widths of a telephone and of a desk, in CSS pixels.
const WIDTHS: [u32; 2] = [500, 1280];

/// Measures, in the page: pictures that have no size, text beyond its picture or on top of other text,
/// and a page wider than its window.
const SCRIPT: &str = r#"<script>
const found = [];
const say = (what) => found.push(what);
if (document.documentElement.scrollWidth > innerWidth + 1)
  say(`the page is ${document.documentElement.scrollWidth} wide in a window of ${innerWidth}`);
const pictures = [...document.querySelectorAll('svg')];
pictures.forEach((svg, n) => {
  const box = svg.getBoundingClientRect();
  if (box.width < 200 || box.height < 100) say(`picture ${n} is ${box.width} by ${box.height}`);
  const texts = [...svg.querySelectorAll('text')].filter((t) => t.textContent.trim());
  if (texts.length < 4) say(`picture ${n} has ${texts.length} texts`);
  const boxes = texts.map((t) => [t.textContent.trim(), t.getBoundingClientRect()]);
  boxes.forEach(([text, b], i) => {
    if (b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1)
      say(`picture ${n}: "${text}" lies beyond it`);
    boxes.slice(i + 1).forEach(([other, o]) => {
      const x = Math.min(b.right, o.right) - Math.max(b.left, o.left);
      const y = Math.min(b.bottom, o.bottom) - Math.max(b.top, o.top);
      if (x > 2 && y > 3) say(`picture ${n}: "${text}" and "${other}" lie on top of each other`);
    });
  });
});
const out = document.createElement('pre');
out.id = 'measured';
out.textContent = JSON.stringify({ pictures: pictures.length, tables: document.querySelectorAll('table').length, found });
document.body.append(out);
</script>"#;

/// A page as a browser shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Pictures.
    pub pictures: usize,
    /// Tables.
    pub tables: usize,
}

/// Opens a page at both widths; `None` where the machine has no Chromium (the test is then left out by name).
/// Panics with what is wrong with the page.
pub fn shows(test: &str, html: &str, folder: &Path) -> Option<Shown> {
    if !needs::tools(test, &["chromium"]) {
        return None;
    }
    let page = folder.join("measured.html");
    std::fs::write(&page, format!("{html}{SCRIPT}")).unwrap();
    let shown = WIDTHS.map(|width| measure(&page, folder, width));
    assert_eq!(shown[0], shown[1]);
    Some(shown[0])
}

fn measure(page: &Path, folder: &Path, width: u32) -> Shown {
    let mut chromium = Command::new("chromium");
    chromium
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", folder.join(format!("profile-{width}")).display()))
        .arg(format!("--window-size={width},900"))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let out = chromium.output().unwrap_or_else(|e| panic!("{chromium:?}: {e}"));
    let dom = String::from_utf8_lossy(&out.stdout);
    let measured = dom.split_once("<pre id=\"measured\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let Some((json, _)) = measured else { panic!("{chromium:?}: {}: no page was shown", out.status) };
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}: {json}"));
    let found = json["found"].as_array().unwrap();
    assert!(found.is_empty(), "at {width} pixels: {found:#?}");
    let count = |name: &str| json[name].as_u64().unwrap() as usize;
    Shown { pictures: count("pictures"), tables: count("tables") }
}
