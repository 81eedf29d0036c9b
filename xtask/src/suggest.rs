//! Did-you-mean: the nearest valid word, and the list of valid words.

/// The word of `choices` that `word` most likely meant, if one is near.
pub fn nearest<'c>(word: &str, choices: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let lower = word.to_lowercase();
    choices
        .into_iter()
        .map(|choice| (distance(&lower, &choice.to_lowercase()), choice))
        .filter(|&(distance, choice)| distance <= 1.max(word.len().min(choice.len()) / 3))
        .min()
        .map(|(_, choice)| choice)
}

/// A help text: the nearest word, then all valid ones.
pub fn help<'c>(word: &str, what: &str, choices: impl IntoIterator<Item = &'c str> + Clone) -> String {
    let all: Vec<_> = choices
        .clone()
        .into_iter()
        .map(|choice| format!("`{choice}`"))
        .collect();
    let valid = if all.is_empty() {
        format!("there are no {what}")
    } else {
        format!("{what}: {}", all.join(", "))
    };
    match nearest(word, choices) {
        Some(near) => format!("did you mean `{near}`? {valid}"),
        None => valid,
    }
}

/// Edits between two words: insertions, deletions, replacements, swapped neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_within_reason() {
        let keys = ["heap", "task_window", "dep_pool"];
        assert_eq!(nearest("heep", keys), Some("heap"));
        assert_eq!(nearest("taskwindow", keys), Some("task_window"));
        assert_eq!(nearest("ehap", keys), Some("heap"));
        assert_eq!(nearest("rounds", keys), None);
        assert_eq!(help("x", "keys", []), "there are no keys");
        assert_eq!(
            help("heep", "valid keys", keys),
            "did you mean `heap`? valid keys: `heap`, `task_window`, `dep_pool`"
        );
    }
}
