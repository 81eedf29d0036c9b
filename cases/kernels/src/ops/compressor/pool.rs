//! Pooling of a window per channel, and the RMSNorm of what comes out.

use half::bf16;

use crate::model::RMS_EPS;
use crate::simd::vectorised;
use crate::tile::{cast, math, reduce};

/// Softmax-weighted sums of many channels that take one entry at a time.
#[derive(Clone, Debug)]
pub(crate) struct Online {
    max: Vec<f32>,
    weight: Vec<f32>,
    sum: Vec<f32>,
}

impl Online {
    /// Sums with their first entry. It must be a real one: it keeps the maxima finite.
    pub(crate) fn start(kv: &[f32], score: &[f32]) -> Self {
        Self {
            max: score.to_vec(),
            weight: vec![1.0; score.len()],
            sum: kv.to_vec(),
        }
    }

    /// Takes an entry.
    pub(crate) fn add(&mut self, kv: &[f32], score: &[f32]) {
        merge(&mut self.max, &mut self.weight, &mut self.sum, kv, score);
    }

    /// The weighted means.
    pub(crate) fn finish(&self, pooled: &mut [f32]) {
        quotient(&self.sum, &self.weight, pooled);
    }
}

vectorised! {
    /// One step: `m' = max(m, s)`, `l = l·e^(m−m') + e^(s−m')`, `o = o·e^(m−m') + kv·e^(s−m')`.
    fn merge(max: &mut [f32], weight: &mut [f32], sum: &mut [f32], kv: &[f32], score: &[f32]) {
        let n = max.len();
        let (weight, sum, kv, score) = (&mut weight[..n], &mut sum[..n], &kv[..n], &score[..n]);
        for c in 0..n {
            let (m, s) = (max[c], score[c]);
            // A NaN score stays one.
            let next = if m > s { m } else { s };
            let (alpha, beta) = (math::exp(m - next), math::exp(s - next));
            weight[c] = alpha * weight[c] + beta;
            sum[c] = sum[c] * alpha + kv[c] * beta;
            max[c] = next;
        }
    }
}

vectorised! {
    fn quotient(sum: &[f32], weight: &[f32], out: &mut [f32]) {
        let n = out.len();
        for (out, (sum, weight)) in out.iter_mut().zip(sum[..n].iter().zip(&weight[..n])) {
            *out = sum / weight;
        }
    }
}

vectorised! {
    fn larger(max: &mut [f32], score: &[f32]) {
        for (m, &s) in max.iter_mut().zip(score) {
            *m = if *m > s { *m } else { s };
        }
    }
}

vectorised! {
    fn exponential(max: &[f32], score: &mut [f32], sum: &mut [f32]) {
        let n = max.len();
        let (score, sum) = (&mut score[..n], &mut sum[..n]);
        for c in 0..n {
            score[c] = math::exp(score[c] - max[c]);
            sum[c] += score[c];
        }
    }
}

vectorised! {
    fn add_product(out: &mut [f32], kv: &[f32], weight: &[f32], norm: &[f32]) {
        let n = out.len();
        let (kv, weight, norm) = (&kv[..n], &weight[..n], &norm[..n]);
        for c in 0..n {
            out[c] += kv[c] * (weight[c] * norm[c]);
        }
    }
}

vectorised! {
    fn add_quotient(out: &mut [f32], kv: &[f32], weight: &[f32], sum: &[f32]) {
        let n = out.len();
        let (kv, weight, sum) = (&kv[..n], &weight[..n], &sum[..n]);
        for c in 0..n {
            out[c] += kv[c] * (weight[c] / sum[c]);
        }
    }
}

/// How the exponentials of a softmax become weights: the programs round differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Times the reciprocal of their sum.
    Reciprocal,
    /// Divided by their sum.
    Quotient,
}

/// Softmax over rows, per channel: replaces `scores` (rows of `pooled.len()`) by their exponentials and sums the weighted rows of `kv`.
pub(super) fn softmax_rows(kv: &[f32], scores: &mut [f32], pooled: &mut [f32], share: Share) {
    let n = pooled.len();
    let mut max = scores[..n].to_vec();
    scores.chunks(n).skip(1).for_each(|row| larger(&mut max, row));
    let mut sum = vec![0f32; n];
    scores.chunks_mut(n).for_each(|row| exponential(&max, row, &mut sum));
    pooled.fill(0.0);
    let rows = kv.chunks(n).zip(scores.chunks(n));
    match share {
        Share::Reciprocal => {
            sum.iter_mut().for_each(|s| *s = 1.0 / *s);
            rows.for_each(|(kv, e)| add_product(pooled, kv, e, &sum));
        }
        Share::Quotient => rows.for_each(|(kv, e)| add_quotient(pooled, kv, e, &sum)),
    }
}

/// `(row · inv_rms) · gain` in place; squares are summed in chunks of 64.
pub(crate) fn normalise(row: &mut [f32], gain: &[bf16]) {
    let mut wide = vec![0f32; gain.len()];
    cast::widen(gain, &mut wide);
    let mean = reduce::sum_of_squares_chunked(row, 64) * (1.0 / row.len() as f32);
    math::scale_mul(row, math::inv_sqrt(mean + RMS_EPS), &wide);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Path;

    /// Entry `i` of channel `c`, with some that weigh nothing.
    fn entries(n: usize) -> (Vec<f32>, Vec<f32>) {
        let value = |i: usize| ((i * 7919) % 1009) as f32 * 0.01 - 5.0;
        let kv = (0..8 * n).map(value).collect();
        let score = (0..8 * n)
            .map(|i| match i % 5 {
                3 if i >= n => f32::MIN,
                4 if i >= n => f32::NEG_INFINITY,
                _ => value(i + 3),
            })
            .collect();
        (kv, score)
    }

    #[test]
    fn all_ways_to_pool_agree_with_the_formula() {
        Path::for_each(check_pooling);
    }

    fn check_pooling(_: Path) {
        for n in [1, 64, 77] {
            let (kv, score) = entries(n);
            let mut online = Online::start(&kv[..n], &score[..n]);
            for i in 1..8 {
                online.add(&kv[i * n..][..n], &score[i * n..][..n]);
            }
            let mut pooled = vec![0f32; n];
            online.finish(&mut pooled);
            for share in [Share::Reciprocal, Share::Quotient] {
                let mut whole = vec![f32::NAN; n];
                softmax_rows(&kv, &mut score.clone(), &mut whole, share);
                for c in 0..n {
                    let weight = |i: usize| f64::from(score[i * n + c]).exp();
                    let sum: f64 = (0..8).map(weight).sum();
                    let want: f64 = (0..8).map(|i| f64::from(kv[i * n + c]) * weight(i) / sum).sum();
                    for got in [pooled[c], whole[c]] {
                        assert!((f64::from(got) - want).abs() < 1e-5, "{n} {c}: {got} not {want}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_broken_score_is_not_lost() {
        let mut online = Online::start(&[1.0], &[0.0]);
        online.add(&[1.0], &[f32::NAN]);
        online.add(&[1.0], &[1.0]);
        let mut pooled = [0.0];
        online.finish(&mut pooled);
        assert!(pooled[0].is_nan());
    }
}
