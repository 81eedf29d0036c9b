//! Constants of DeepSeek-V4-Pro that programs, fixtures and references share.

/// Width of the residual stream.
pub const HIDDEN: usize = 7168;
/// Residual streams of a token (hyper-connections).
pub const STREAMS: usize = 4;
/// All streams of a token side by side.
pub const HC_DIM: usize = STREAMS * HIDDEN;
/// Rows of the hyper-connection projection: 4 pre, 4 post, 16 comb.
pub const HC_MIX: usize = 24;
/// The same, padded for the matrix unit.
pub const HC_MIX_PAD: usize = 32;
/// Width of a padded gate row.
pub const HC_GATE_PAD: usize = 8;
/// Rounds of row and column normalisation of the comb matrix.
pub const SINKHORN_ROUNDS: usize = 20;
/// Added in hyper-connection normalisations.
pub const HC_EPS: f32 = 1e-6;
/// Added under the root of an RMS.
pub const RMS_EPS: f32 = 1e-6;

/// Query heads.
pub const HEADS: usize = 128;
/// Lanes of a head, and of the one key-value head.
pub const HEAD_DIM: usize = 512;
/// Lanes of a head that are rotated: the last ones.
pub const ROPE_DIM: usize = 64;
/// Lanes of a head that are not.
pub const NOPE_DIM: usize = HEAD_DIM - ROPE_DIM;
/// Rank of the query projection.
pub const Q_LORA: usize = 1536;

/// Groups of the output projection.
pub const O_GROUPS: usize = 16;
/// Heads of a group.
pub const GROUP_HEADS: usize = HEADS / O_GROUPS;
/// Inputs of a group.
pub const GROUP_DIM: usize = GROUP_HEADS * HEAD_DIM;
/// Rank of the output projection per group.
pub const O_LORA: usize = 1024;

/// Rows of a key-value page.
pub const PAGE: usize = 128;
/// Positions that the sliding window sees.
pub const WINDOW: usize = 128;
/// Columns of a table of compressed rows.
pub const INDEX_TOPK: usize = 1024;
/// Pages of the original key-value pool.
pub const ORI_PAGES: usize = 128;
/// Pages of the compressed pool.
pub const CMP_PAGES: usize = 32;
/// Pages of the indexer's pool of compressed keys.
pub const INDEX_PAGES: usize = 64;
/// Heads of the indexer's queries.
pub const INDEX_HEADS: usize = 64;
/// Lanes of such a head, and of a key.
pub const INDEX_DIM: usize = 128;

/// Inner width of an expert's feed-forward network.
pub const EXPERT_DIM: usize = 3072;
/// Bound of an expert's gate and up projections.
pub const SWIGLU_LIMIT: f32 = 10.0;
/// Experts that a token is routed to.
pub const CHOSEN: usize = 6;
/// Experts that a rank owns.
pub const LOCAL_EXPERTS: usize = 48;
/// Factor of the normalised route weights.
pub const ROUTE_SCALE: f32 = 2.5;
/// Layers from the first on that route by token id instead of by score.
pub const HASH_LAYERS: i32 = 3;
/// Token ids.
pub const VOCAB: usize = 129_280;
/// Ranks of the programs that span several.
pub const RANKS: usize = 2;

/// Tokens of a prefill tile.
pub const PREFILL_TOKENS: usize = 128;
/// Requests of a decode step.
pub const REQUESTS: usize = 4;
/// Tokens of a request in a decode step.
pub const STEP_TOKENS: usize = 2;
/// Tokens of a decode step.
pub const DECODE_TOKENS: usize = REQUESTS * STEP_TOKENS;
/// Rows that the matrix unit works on at a time.
pub const MATRIX_ROWS: usize = 16;

/// Rows of a matrix buffer for `tokens` tokens.
pub const fn matrix_rows(tokens: usize) -> usize {
    tokens.next_multiple_of(MATRIX_ROWS)
}
