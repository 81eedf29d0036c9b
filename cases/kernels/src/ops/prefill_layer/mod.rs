//! One layer of the main model over the chunks of several requests, on two ranks: tile after tile, each through the
//! attention and the mixture of experts.

pub(crate) mod attention;
mod case;
mod chunks;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

pub use case::PrefillLayer;

use self::attention::{AttentionArgs, AttentionWeights, TILE};
use self::chunks::Chunks;
use super::forward::Attention;
use super::layers::Layer;
use super::moe::{MoeCall, MoeScratch, MoeWeights, MoeWindows, moe, moe_retire};
use crate::creates::Creates;
use crate::model::{HIDDEN, STREAMS};
use crate::scopes::BodyScopes;

/// What one rank has.
struct Rank {
    /// Streams of all rows, [rows, 4, 7168] f32.
    x_hc: Tensor,
    /// Token ids of all rows, \[rows\] i64.
    input_ids: Tensor,
    /// Arguments of each tile.
    tiles: Vec<AttentionArgs>,
    attention: AttentionWeights,
    experts: MoeWeights,
    /// Streams after the layer, [rows, 4, 7168] f32, written.
    x_next: Tensor,
}

/// Submits the layer on `rank`: loops over requests and tiles, whose bodies are scopes, so that a tile's buffers are all
/// in ring 3. Its first allocation holds the rest: nothing of a tile is freed before all of it.
///
/// No explicit dependency orders what a tile writes into the pools behind the last tile's readers of them, and none is
/// needed: this program reads the counts of a tile's experts before it submits the next tile, and the counts come after
/// all of the attention that leads to its result. The windows of the mixture of experts are guarded by its signals.
///
/// The retirement waits for the streams of every tile. An anchor in the first row, as in the original, would come after
/// the first tile only, and could take credits that the waits of later ones still need.
fn prefill_layer(
    o: &mut Orchestrator<'_>,
    rank: usize,
    layer: Layer,
    chunks: &Chunks,
    args: &Rank,
    windows: &MoeWindows,
) -> Result<(), Halted> {
    let bodies = BodyScopes::Automatic;
    for request in chunks.requests() {
        bodies.body(o, |o| {
            for tile in request {
                bodies.body(o, |o| {
                    let call = MoeCall {
                        rank,
                        epoch: tile.index as i32 + 1,
                        layer_id: layer.id as i32,
                        num_tokens: tile.live as i32,
                    };
                    one_tile(o, bodies, tile.base, call, args, windows)
                })?;
            }
            Ok(())
        })?;
    }
    moe_retire(o, rank, chunks.tiles().count() as i32, &args.x_next, windows)
}

/// Submits the tile whose first row is `base`.
fn one_tile(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    base: usize,
    call: MoeCall,
    args: &Rank,
    windows: &MoeWindows,
) -> Result<(), Halted> {
    let mut creates = Creates::new();
    let x_attn = creates.tensor("x_attn_tile", DType::F32, &[TILE, STREAMS, HIDDEN]);
    let scratch = MoeScratch::declare(&mut creates, TILE);
    creates.alloc(o)?;
    let rows = base..base + TILE;
    let attention = args.tiles[call.epoch as usize - 1].between(&args.x_hc.rows(rows.clone()), &x_attn);
    let attend = |o: &mut Orchestrator<'_>| attention.submit(o, bodies, &args.attention);
    // The kind is chosen by nested branches.
    if call.layer_id < 2 {
        bodies.body(o, attend)?;
    } else {
        bodies.body(o, |o| bodies.body(o, attend))?;
    }
    moe(
        o,
        bodies,
        call,
        &x_attn,
        &args.input_ids.rows(rows.clone()),
        &args.experts,
        &args.x_next.rows(rows),
        windows,
        &scratch,
    )
}
