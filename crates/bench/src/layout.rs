//! Figures over several processes: where memory lies differs from process to process and makes modes (of six
//! processes one had 1.26 where the others had 1.06), which no number of rounds in one of them shows.

use nearside_loadgen::record::Figure;

/// The same figures of several processes as one list: the median of the processes' values and ratios, all
/// their runs, and the least and the greatest of any. A figure that is not in each of them stays out.
pub fn over(processes: &[Vec<Figure>]) -> Vec<Figure> {
    let Some((first, others)) = processes.split_first() else { return Vec::new() };
    let of_name = |figure: &Figure| -> Option<Vec<Figure>> {
        let same = |list: &Vec<Figure>| list.iter().find(|it| it.name == figure.name).cloned();
        let others: Option<Vec<Figure>> = others.iter().map(same).collect();
        Some([vec![figure.clone()], others?].concat())
    };
    first.iter().filter_map(of_name).map(|same| merged(&same)).collect()
}

fn merged(same: &[Figure]) -> Figure {
    let median = |values: &[f64]| Figure::of("", "", values).value;
    let ratios: Vec<f64> = same.iter().filter_map(|it| it.ratio).collect();
    let ends = |of: fn(&Figure) -> f64| same.iter().map(of);
    Figure {
        value: median(&same.iter().map(|it| it.value).collect::<Vec<_>>()),
        ratio: (ratios.len() == same.len()).then(|| median(&ratios)),
        runs: same.iter().map(|it| it.runs).sum(),
        spread: [
            ends(|it| it.spread[0]).fold(f64::INFINITY, f64::min),
            ends(|it| it.spread[1]).fold(f64::NEG_INFINITY, f64::max),
        ],
        ..same[0].clone()
    }
}

/// Each figure's ratios (values where it stands beside nothing), process by process, for a terminal.
pub fn modes(processes: &[Vec<Figure>]) -> String {
    let line = |figure: &Figure| {
        let of = |list: &Vec<Figure>| {
            let it = list.iter().find(|it| it.name == figure.name)?;
            Some(format!("{:.2}", it.ratio.unwrap_or(it.value)))
        };
        let each: Vec<String> = processes.iter().filter_map(of).collect();
        format!("  {}: {} by process\n", figure.name, each.join(" "))
    };
    processes.first().map_or_else(String::new, |first| first.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, runs: &[f64], floor: f64) -> Figure {
        Figure::of(name, "ns", runs).beside(&Figure::of("floor", "ns", &[floor]))
    }

    #[test]
    fn one_process_of_several_is_not_the_figure() {
        let processes = [
            vec![figure("a", &[1.0, 1.06, 1.1], 1.0), figure("b", &[7.0], 7.0)],
            vec![figure("a", &[1.2, 1.26, 1.4], 1.0)],
            vec![figure("b", &[7.0], 7.0), figure("a", &[0.9, 1.04, 1.2], 1.0)],
        ];
        let over = over(&processes);
        // One is missing in a process.
        assert_eq!(over.len(), 1);
        let a = &over[0];
        assert_eq!((a.name.as_str(), a.value, a.ratio, a.runs), ("a", 1.06, Some(1.06), 9));
        assert_eq!(a.spread, [0.9, 1.4]);
        assert_eq!(modes(&processes[..2]), "  a: 1.06 1.26 by process\n  b: 1.00 by process\n");
    }
}
