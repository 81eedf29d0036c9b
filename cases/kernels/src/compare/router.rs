//! Rules of the expert router: chosen experts may differ only where scores are too close to call.

use std::fmt;

use ring_runtime::Tensor;

use super::scan::wide;
use super::verdict::{Outcome, TensorVerdict};

/// Error band of a router score: `atol + rtol · |score|`.
#[derive(Clone, Copy, Debug)]
struct Band {
    atol: f64,
    rtol: f64,
}

impl Band {
    fn of(self, score: f64) -> f64 {
        self.atol + self.rtol * score.abs()
    }
}

const BAND: Band = Band { atol: 1e-4, rtol: 2e-5 };

/// What the choice of experts is judged by: the reference's scores, [tokens, experts], without and with the selection bias.
#[derive(Clone, Copy, Debug)]
pub struct GateIndices<'a> {
    /// Scores without the bias.
    pub score: &'a [f32],
    /// Scores with it: what decides.
    pub biased: &'a [f32],
    /// Number of experts.
    pub experts: usize,
    /// Rows that are in use; the others must be zero.
    pub active: usize,
}

impl GateIndices<'_> {
    /// Checks chosen experts [tokens, k]: in range, distinct, and in an order that the bands admit.
    pub fn compare(&self, name: &str, actual: &Tensor) -> TensorVerdict {
        let mut verdict = TensorVerdict::start(name, actual, self);
        let k = actual.dims()[1];
        let chosen = wide(actual);
        if self.score.iter().chain(self.biased).any(|v| !v.is_finite()) {
            verdict.outcome = Outcome::GoldenNan;
            verdict.message = String::from("the reference's scores are not finite");
            return verdict;
        }
        for (t, row) in chosen.chunks(k).enumerate() {
            if let Err((column, message)) = self.row(t, row) {
                verdict.mismatched += 1;
                verdict.point((t * k + column) as u64, row[column], f64::NAN);
                verdict.mismatch(|| format!("token {t}: {message}"));
            }
        }
        verdict
    }

    fn row(&self, t: usize, row: &[f64]) -> Result<(), (usize, String)> {
        if t >= self.active {
            return match row.iter().position(|v| *v != 0.0) {
                Some(column) => Err((column, "inactive tail contains a nonzero value".to_owned())),
                None => Ok(()),
            };
        }
        let at = |n: usize| {
            let biased = f64::from(self.biased[t * self.experts + n]);
            (biased, BAND.of(f64::from(self.score[t * self.experts + n])))
        };
        let mut selected = vec![false; self.experts];
        for (column, id) in row.iter().enumerate() {
            if !(*id >= 0.0 && *id < self.experts as f64) {
                return Err((column, format!("expert {id} of {}", self.experts)));
            }
            if std::mem::replace(&mut selected[*id as usize], true) {
                return Err((column, format!("expert {id} is chosen twice")));
            }
        }
        let least = row
            .iter()
            .map(|id| at(*id as usize))
            .map(|(b, e)| b + e)
            .fold(f64::INFINITY, f64::min);
        for n in (0..self.experts).filter(|&n| !selected[n]) {
            let (biased, band) = at(n);
            if biased - band > least {
                return Err((
                    row.len() - 1,
                    format!("expert {n} is better than a chosen one, beyond the error band"),
                ));
            }
        }
        for later in 1..row.len() {
            let (biased, band) = at(row[later] as usize);
            for earlier in &row[..later] {
                let (before, slack) = at(*earlier as usize);
                if biased - band > before + slack {
                    return Err((
                        later,
                        format!("expert {} stands after the lesser {earlier}", row[later]),
                    ));
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for GateIndices<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gate_indices(score_atol={}, score_rtol={})", BAND.atol, BAND.rtol)
    }
}

/// Weights of the chosen experts, judged at the experts that the program chose.
#[derive(Clone, Copy, Debug)]
pub struct GateWeights<'a> {
    /// The reference's scores without the bias, [tokens, experts].
    pub score: &'a [f32],
    /// Number of experts.
    pub experts: usize,
    /// Rows that are in use; the others must be zero.
    pub active: usize,
    /// What the weights of a token add up to.
    pub sum: f64,
}

impl GateWeights<'_> {
    /// Checks weights [tokens, k] at the experts `indices` [tokens, k].
    pub fn compare(&self, name: &str, actual: &Tensor, indices: &Tensor) -> TensorVerdict {
        const SLACK: f64 = 2e-5;
        let mut verdict = TensorVerdict::start(name, actual, self);
        let k = actual.dims()[1];
        let (weights, chosen) = (wide(actual), wide(indices));
        for (t, (w, ids)) in weights.chunks(k).zip(chosen.chunks(k)).enumerate() {
            let bad = w.iter().filter(|v| !v.is_finite()).count() as u64;
            if bad > 0 {
                verdict.nonfinite_actual += bad;
                verdict.nonfinite_rows += 1;
                verdict.first_row = verdict.first_row.or(Some(t as u64));
                verdict.all_nan_rows += u64::from(w.iter().all(|v| v.is_nan()));
                verdict.outcome = Outcome::Nan;
                verdict.message = format!("token {t} has {bad} non-finite weights");
                continue;
            }
            if t >= self.active {
                if w.iter().any(|v| *v != 0.0) {
                    verdict.mismatch(|| format!("token {t}: inactive tail contains a nonzero value"));
                }
                continue;
            }
            if ids.iter().any(|id| !(*id >= 0.0 && *id < self.experts as f64)) {
                verdict.mismatch(|| format!("token {t}: an expert is out of range"));
                continue;
            }
            let total: f64 = w.iter().sum();
            if (total - self.sum).abs() > SLACK {
                verdict.mismatch(|| format!("token {t}: weights add up to {total}, not {}", self.sum));
            }
            let score: Vec<f64> = ids
                .iter()
                .map(|id| f64::from(self.score[t * self.experts + *id as usize]))
                .collect();
            let band: Vec<f64> = score.iter().map(|s| BAND.of(*s)).collect();
            let (s, e) = (score.iter().sum::<f64>(), band.iter().sum::<f64>());
            for i in 0..k {
                let expected = self.sum * score[i] / s;
                let bound = self.sum * (s * band[i] + score[i] * e) / (s * (s - e)) + SLACK;
                let diff = (w[i] - expected).abs();
                verdict.max_abs_err = verdict.max_abs_err.max(diff);
                if !(w[i] > 0.0 && diff <= bound) {
                    verdict.mismatched += 1;
                    verdict.point((t * k + i) as u64, w[i], expected);
                    verdict.mismatch(|| format!("token {t}: weight {} instead of {expected}, bound {bound:e}", w[i]));
                }
            }
        }
        if self.score.iter().any(|v| !v.is_finite()) {
            verdict.outcome = Outcome::GoldenNan;
            verdict.message = String::from("the reference's scores are not finite");
        }
        verdict
    }
}

impl fmt::Display for GateWeights<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gate_weights(sum={})", self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCORE: [f32; 4] = [1.0, 0.5, 0.499_99, 0.1];

    fn indices(ids: &[i32]) -> Outcome {
        let rule = GateIndices {
            score: &SCORE,
            biased: &SCORE,
            experts: 4,
            active: 1,
        };
        rule.compare("indices", &Tensor::from_vec(&[ids.len() / 2, 2], ids.to_vec()))
            .outcome
    }

    #[test]
    fn close_scores_may_swap() {
        assert_eq!(indices(&[0, 1]), Outcome::Pass);
        assert_eq!(indices(&[0, 2]), Outcome::Pass, "within the band");
        assert_eq!(indices(&[1, 0]), Outcome::Mismatch, "order");
        assert_eq!(indices(&[0, 3]), Outcome::Mismatch, "a better one was left out");
        assert_eq!(indices(&[0, 0]), Outcome::Mismatch);
        assert_eq!(indices(&[0, 4]), Outcome::Mismatch);
        assert_eq!(indices(&[0, 1, 0, 0]), Outcome::Pass);
        assert_eq!(indices(&[0, 1, 0, 1]), Outcome::Mismatch, "inactive tail");
    }

    #[test]
    fn weights_follow_the_chosen_scores() {
        let rule = GateWeights {
            score: &SCORE,
            experts: 4,
            active: 1,
            sum: 2.5,
        };
        let check = |w: [f32; 2]| {
            let ids = Tensor::from_vec(&[1, 2], vec![0, 1]);
            rule.compare("weights", &Tensor::from_vec(&[1, 2], w.to_vec()), &ids)
                .outcome
        };
        assert_eq!(check([2.5 / 1.5, 1.25 / 1.5]), Outcome::Pass);
        assert_eq!(check([1.7, 0.8]), Outcome::Mismatch);
        assert_eq!(check([2.5, 0.0]), Outcome::Mismatch);
        assert_eq!(check([f32::NAN, 0.0]), Outcome::Nan);
    }
}
