//! The whole demo, small: it ends well, and its page holds what it promises.

use nearside_conformance::browser::shows;

#[test]
fn three_acts_and_a_page() {
    let out = tempfile::tempdir().unwrap();
    let page = nearside_demo::run(out.path(), true).unwrap();
    let html = std::fs::read_to_string(page).unwrap();
    for act in ["Act 1", "Act 2", "Act 3"] {
        assert!(html.contains(act), "{act} is missing");
    }
    assert!(html.matches("<svg").count() >= 4, "pictures are missing");
    if let Some(shown) = shows("acts::three_acts_and_a_page", &html, out.path()) {
        assert!(shown.pictures >= 4 && shown.tables >= 4, "{shown:?}");
    }
    assert!(!html.contains("<script") && !html.contains("src="), "the page is not self-contained");
}
