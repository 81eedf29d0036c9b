//! Fixture of the block.

use half::bf16;
use ring_runtime::{DType, Tensor};

use super::{CsaBlockArgs, CsaWeights, FORM, StateArgs};
use crate::fixture::compressor::{Form, INDEX};
use crate::fixture::decode::{DecodeBatch, PageTable};
use crate::fixture::paging::{self, PageOrder};
use crate::fixture::{
    CompressorWeights, Dist, Fixture, Profile, RopeTables, Rounding, hadamard, normalised_rows, quant,
};
use crate::model::{CMP_PAGES, HC_MIX, HEAD_DIM, INDEX_DIM, INDEX_PAGES, PAGE};
use crate::ops::decode_attend::TOKENS;
use crate::ops::decode_attention::draw::BlockDist;
use crate::ops::decode_attention::{BlockArgs, BlockWeights};
use crate::ops::decode_indexer::IndexerWeights;

const HC_BASE: [f32; HC_MIX] = [
    5.9166, -3.6223, -2.9324, -3.3124, -3.91, -0.9384, -3.3256, -2.524, 2.0706, -2.5728, 0.1424, -3.9453, -3.8859,
    3.4634, -3.3799, -2.6077, -2.7191, -2.4846, 2.0395, -0.501, -3.5992, -2.752, -3.3493, 3.1587,
];

/// How the spec draws the weights.
const DIST: BlockDist = BlockDist {
    hc_deviation: 0.0519,
    hc_scale: [0.076_099, 0.032_597, 0.226_994],
    hc_base: HC_BASE,
    sink: 4.0,
    rounding: Rounding::HalfAway,
};

impl CsaWeights {
    pub(crate) fn draw(fixture: Fixture) -> Self {
        Self::draw_with(fixture, BlockWeights::draw(fixture, DIST))
    }

    /// The same around weights drawn elsewhere.
    pub(crate) fn draw_with(fixture: Fixture, block: BlockWeights) -> Self {
        Self {
            block,
            compressor: CompressorWeights::draw(fixture, "cmp_", &FORM),
            indexer: IndexerWeights::draw(fixture, "idx_"),
            hadamard: hadamard(INDEX_DIM),
        }
    }
}

impl StateArgs {
    /// Key-values of zero and scores of −∞, but small normal values in the row of every position before the starts.
    fn draw(fixture: Fixture, name: &str, form: &Form, batch: &DecodeBatch) -> Self {
        let table = PageTable::state(form, PageOrder::Linear);
        let width = form.state_width();
        let state = Tensor::zeros(DType::F32, &[form.pages, form.page, width]);
        {
            let mut state = state.write::<f32>();
            let mut filled = vec![false; form.state_rows()];
            for (b, start) in batch.starts().iter().enumerate() {
                for position in 0..*start {
                    if let Ok(row) = usize::try_from(paging::slot(table.request(b), form.page, position)) {
                        filled[row] = true;
                    }
                }
            }
            let stream = fixture.stream(name);
            for (i, (row, filled)) in state.chunks_mut(width).zip(filled).enumerate() {
                if filled {
                    Dist::normal(0.05, 0.0).draw(stream, (i * width) as u64, row);
                } else {
                    row[form.out()..].fill(f32::NEG_INFINITY);
                }
            }
        }
        Self {
            state,
            block_table: table.tensor(),
            slot_mapping: batch.slots(&table).reshape(&[TOKENS]),
        }
    }
}

/// Keys of normalised rows, and their scales.
fn draw_keys(fixture: Fixture) -> (Tensor, Tensor) {
    let rows = normalised_rows(fixture, "idx_kv_cache", &[INDEX_PAGES, PAGE, 1, INDEX_DIM]);
    let (codes, scales) = (
        Tensor::zeros(DType::I8, rows.dims()),
        Tensor::zeros(DType::F32, &[INDEX_PAGES, PAGE, 1, 1]),
    );
    {
        let (rows, mut codes, mut scales) = (rows.read::<bf16>(), codes.write::<i8>(), scales.write::<f32>());
        let rows = rows.chunks(INDEX_DIM).zip(codes.chunks_mut(INDEX_DIM));
        for ((row, codes), scale) in rows.zip(scales.iter_mut()) {
            let amax = row.iter().fold(0f32, |m, v| m.max(v.to_f32().abs()));
            let multiplier = quant::multiplier(amax);
            for (code, value) in codes.iter_mut().zip(row) {
                *code = Rounding::HalfEven.code(value.to_f32() * multiplier);
            }
            *scale = 1.0 / multiplier;
        }
    }
    (codes, scales)
}

impl CsaBlockArgs {
    pub(crate) fn draw(fixture: Fixture, batch: &DecodeBatch) -> Self {
        let block = BlockArgs::draw(fixture, batch, RopeTables::of(Profile::Compressed));
        block
            .x_hc
            .write::<f32>()
            .iter_mut()
            .for_each(|v| *v = bf16::from_f32(*v).to_f32());
        let [cmp_table, idx_table] =
            [CMP_PAGES, INDEX_PAGES].map(|pages| PageTable::compressed(pages, PageOrder::Linear));
        let slots = |table| batch.compressed_slots(table, FORM.ratio).reshape(&[TOKENS]);
        let (idx_kv_cache, idx_kv_scale) = draw_keys(fixture);
        Self {
            block,
            main: StateArgs::draw(fixture, "compress_state", &FORM, batch),
            inner: StateArgs::draw(fixture, "inner_compress_state", &INDEX, batch),
            cmp_kv: normalised_rows(fixture, "cmp_kv", &[CMP_PAGES, PAGE, 1, HEAD_DIM]),
            cmp_slot_mapping: slots(&cmp_table),
            cmp_block_table: cmp_table.tensor(),
            idx_kv_cache,
            idx_kv_scale,
            idx_slot_mapping: slots(&idx_table),
            idx_block_table: idx_table.tensor(),
            kv_seq_lens: batch.kv_seq_lens(),
        }
    }

    /// The pools that a step changes.
    pub(crate) fn pools(&self) -> [&Tensor; 6] {
        [
            &self.block.kv_cache,
            &self.cmp_kv,
            &self.main.state,
            &self.inner.state,
            &self.idx_kv_cache,
            &self.idx_kv_scale,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Family;
    use crate::fixture::decode::START_POS;
    use crate::kernel::Params;

    /// Values of −∞ in the state before a step at this start.
    fn infinities(start: &str) -> usize {
        let params = Params::resolve("k", &[START_POS], &[(START_POS.name, start)]).unwrap();
        let batch = DecodeBatch::of_params(Family::Csa, &params);
        let state = StateArgs::draw(Fixture::new(1), "s", &FORM, &batch).state;
        let state = state.read::<f32>();
        state.iter().filter(|v| **v == f32::NEG_INFINITY).count()
    }

    #[test]
    fn requests_that_have_come_far_fill_the_whole_state() {
        // Positions below 8192 of request 0 alone cover all 65 pages.
        assert_eq!(infinities("-1"), 0);
        assert_eq!(infinities("0"), FORM.state_rows() * FORM.out());
        assert_eq!(infinities("4"), (FORM.state_rows() - 4 * 4) * FORM.out());
    }
}
