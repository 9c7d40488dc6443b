//! What the NAND drive's fits to one half of the paper's cells came to, done again: some 15 minutes each.

use nearside_studies::pieee17::fit::{Half, LONG, fit};

#[test]
#[ignore = "a quarter of an hour: cargo test --release -p nearside-studies --test fit -- --ignored --nocapture"]
fn the_fit_to_iv_comes_out_as_it_is_kept() {
    again(Half::Iv);
}

#[test]
#[ignore = "a quarter of an hour: cargo test --release -p nearside-studies --test fit -- --ignored --nocapture"]
fn the_fit_to_v_b_comes_out_as_it_is_kept() {
    again(Half::VB);
}

fn again(half: Half) {
    let found = fit(half, &LONG, &|text| eprintln!("{text}")).unwrap();
    assert_eq!(found, half.fitted(), "{}", half.model());
}
