//! How the chunks of several requests lie in rows: each from a row of its own, padded to whole tiles.

use crate::fixture::prefill::Tile;

use super::attention::TILE;

/// Lengths of the chunks; every request is at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    lens: Vec<usize>,
}

/// A tile of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkTile {
    /// Which, of all requests' tiles.
    pub(super) index: usize,
    pub(super) request: usize,
    /// First row.
    pub(super) base: usize,
    /// Position of that row.
    pub(super) start: usize,
    /// Rows that hold tokens.
    pub(super) live: usize,
}

impl ChunkTile {
    /// Its place in its sequence.
    pub(super) fn place(self) -> Tile {
        Tile {
            start: self.start,
            num_tokens: self.live,
        }
    }
}

impl Chunks {
    /// Chunks of these lengths, each at least 1.
    pub(super) fn new(lens: &[usize]) -> Self {
        assert!(lens.iter().all(|len| *len > 0), "a chunk has a token");
        Self { lens: lens.to_vec() }
    }

    /// Number of requests.
    pub(super) fn len(&self) -> usize {
        self.lens.len()
    }

    /// All tiles, in the order in which they run.
    pub(super) fn tiles(&self) -> impl Iterator<Item = ChunkTile> {
        let of_request = |(request, len): (usize, &usize)| {
            let len = *len;
            (0..len.div_ceil(TILE)).map(move |i| (request, i, TILE.min(len - i * TILE)))
        };
        let all = self.lens.iter().enumerate().flat_map(of_request);
        // Requests are padded to whole tiles, so rows are counted in these.
        all.enumerate().map(|(index, (request, i, live))| ChunkTile {
            index,
            request,
            base: index * TILE,
            start: i * TILE,
            live,
        })
    }

    /// The tiles of each request.
    pub(super) fn requests(&self) -> impl Iterator<Item = Vec<ChunkTile>> {
        (0..self.len()).map(|request| self.tiles().filter(|t| t.request == request).collect())
    }

    /// Rows in all, padding included.
    pub(super) fn rows(&self) -> usize {
        self.tiles().count() * TILE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_begins_in_a_tile_of_its_own() {
        let chunks = Chunks::new(&[128, 192]);
        let found: Vec<_> = chunks.tiles().map(|t| (t.request, t.base, t.start, t.live)).collect();
        assert_eq!(found, [(0, 0, 0, 128), (1, 128, 0, 128), (1, 256, 128, 64)]);
        assert_eq!((chunks.rows(), chunks.len()), (384, 2));
        let one = Chunks::new(&[1, 129]);
        assert_eq!(one.tiles().map(|t| t.live).collect::<Vec<_>>(), [1, 128, 1]);
        assert_eq!(one.requests().map(|r| r.len()).collect::<Vec<_>>(), [1, 2]);
    }
}
