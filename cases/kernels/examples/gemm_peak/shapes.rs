//! The products of the programs, at the size of one block or of one core's share.

use std::time::Duration;

use half::bf16;
use kernels::simd::Path;
use kernels::tile::gemm::{Operand, Rhs, Store};
use ring_runtime::{Element, Tensor, Tile, TileMut};

use crate::clock::times;
use crate::memory::touch;

/// Operand type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    Bf16,
    I8,
}

/// Layout of B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Kn,
    Nk,
}

/// One product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) layout: Layout,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    /// Width of the `K × N` matrix that B is a window of (0: B is dense). The row stride matters to
    /// caches and address translation.
    pub(crate) wide: usize,
}

const fn shape(name: &'static str, kind: Kind, layout: Layout, mnk: [usize; 3], wide: usize) -> Shape {
    Shape {
        name,
        kind,
        layout,
        m: mnk[0],
        n: mnk[1],
        k: mnk[2],
        wide,
    }
}

use Kind::{Bf16, F32, I8};
use Layout::{Kn, Nk};

/// What is measured.
pub(crate) const ALL: &[Shape] = &[
    shape("square", F32, Kn, [128, 1024, 1024], 0),
    shape("gate logits", F32, Nk, [128, 384, 7168], 0),
    shape("hc_pre linear", F32, Nk, [16, 32, 7168], 0),
    shape("decode f32", F32, Kn, [8, 256, 7168], 0),
    shape("q down", Bf16, Kn, [128, 128, 3584], 1536),
    shape("kv", Bf16, Kn, [128, 128, 1792], 512),
    shape("q·kᵀ", Bf16, Nk, [32, 128, 512], 0),
    shape("p·v", Bf16, Kn, [32, 512, 128], 0),
    shape("proj_a fragment", Bf16, Nk, [128, 128, 4096], 0),
    shape("proj_a", Bf16, Nk, [128, 1024, 4096], 0),
    shape("lm_head", Bf16, Nk, [16, 1024, 7168], 0),
    shape("hadamard", Bf16, Kn, [256, 128, 128], 0),
    shape("q down, decode", Bf16, Kn, [8, 128, 3584], 1536),
    shape("proj_a, decode", Bf16, Nk, [8, 1024, 4096], 0),
    shape("q up", I8, Kn, [128, 1024, 1536], 65536),
    shape("proj_b", I8, Nk, [128, 1024, 1024], 0),
    shape("indexer scores", I8, Nk, [128, 128, 128], 0),
    shape("shared expert", I8, Nk, [128, 1024, 7168], 0),
    shape("expert gate", I8, Nk, [16, 1024, 7168], 0),
    shape("expert down", I8, Nk, [16, 1024, 3072], 0),
    shape("q up, decode", I8, Kn, [8, 1024, 1536], 65536),
    shape("proj_b, decode", I8, Nk, [8, 1024, 1024], 0),
];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            F32 => "f32",
            Bf16 => "bf16",
            I8 => "i8",
        }
    }
}

impl Layout {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kn => "[K,N]",
            Nk => "[N,K]",
        }
    }
}

/// What was measured, in 10⁹ operations per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// The product's rate.
    pub(crate) reached: f64,
    /// The rate at which B alone arrives, read once in the order of memory by a loop that does nothing else.
    pub(crate) memory: f64,
}

impl Shape {
    /// Rates with `threads` threads, each with an `m × n` product of its own (disjoint columns of B) and
    /// the same A.
    pub(crate) fn rate(&self, path: Path, threads: usize) -> Rate {
        match self.kind {
            F32 => self.run(path, threads, |i| ((i % 251) as f32 - 125.0) / 128.0),
            Bf16 => self.run(path, threads, |i| bf16::from_f32(((i % 251) as f32 - 125.0) / 128.0)),
            I8 => self.run(path, threads, |i| (i % 251) as i8),
        }
    }

    fn run<T: Operand>(&self, path: Path, threads: usize, value: impl Fn(usize) -> T) -> Rate
    where
        T::Out: Element,
    {
        let &Self { m, n, k, layout, .. } = self;
        // Repeat a small product on fresh columns until B has about 8 MiB: weights come from memory.
        let copies = (8 * 1024 * 1024 / (n * k * size_of::<T>()))
            .clamp(1, if self.wide > 0 { self.wide / n / threads } else { 64 });
        let columns = if self.wide > 0 { self.wide } else { n * copies * threads };
        let a: Vec<T> = (0..m * k).map(&value).collect();
        let dims = match layout {
            Kn => [k, columns],
            Nk => [columns, k],
        };
        // In memory of the kind that the programs' weights are in: the pages matter.
        let b = Tensor::from_vec(&dims, (0..columns * k).map(|i| value(i * 7)).collect());
        let guard = b.read::<T>();
        let b = Tile::new(&guard, dims[0], dims[1]);
        let share = |thread: usize| {
            let a = &a;
            let mut c = vec![T::Out::default(); m * n];
            move || {
                for copy in 0..copies {
                    let first = (thread * copies + copy) * n;
                    let rhs = match layout {
                        Kn => Rhs::Kn(b.sub(0..k, first..first + n)),
                        Nk => Rhs::Nk(b.sub(first..first + n, 0..k)),
                    };
                    T::gemm_on(
                        path,
                        Tile::new(a, m, k),
                        rhs,
                        &mut TileMut::new(&mut c, m, n),
                        Store::Overwrite,
                    );
                }
                std::hint::black_box(&c);
            }
        };
        let read = |thread: usize| {
            let width = n * copies;
            let lines = match layout {
                Kn => b.sub(0..k, thread * width..(thread + 1) * width),
                Nk => b.sub(thread * width..(thread + 1) * width, 0..k),
            };
            move || (0..lines.rows()).for_each(|r| touch(lines.row(r)))
        };
        let rate = |time: Duration| 2.0 * (m * n * k * copies * threads) as f64 / time.as_secs_f64() / 1e9;
        // Around the product, as the traffic of others comes and goes.
        let before = times(threads, read)[0];
        let product = times(threads, share);
        let after = times(threads, read)[0];
        Rate {
            reached: rate(product[product.len() / 2]),
            memory: rate(before.min(after)),
        }
    }
}
