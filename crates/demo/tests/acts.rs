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
    assert_eq!(html.matches("<div><b>").count(), 3, "a number for each act");
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text} is missing"));
    assert!(
        at("class=place") < at("<div><b>") && at("<div><b>") < at("Act 1"),
        "numbers and machine stand first"
    );
    if let Some(shown) = shows("acts::three_acts_and_a_page", &html, out.path()) {
        assert!(shown.pictures >= 5 && shown.tables >= 4, "{shown:?}");
    }
    // The library has a function of that name.
    let own = html.split("<script type=\"text/javascript\">").next().unwrap();
    assert!(!own.contains("floor"), "nothing is below a floor");
}
