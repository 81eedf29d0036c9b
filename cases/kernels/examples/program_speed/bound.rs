//! The least time that the matrix products of a dispatch can take on this machine.

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;

use kernels::tile::gemm::meter::Product;
use ring_runtime::{DType, Tensor, Tile};

use crate::clock::times;
use crate::memory::touch;

/// What the machine can do, measured in this run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) cores: NonZeroUsize,
    /// Operations per second of all cores: f32 multiply-adds.
    pub(crate) float: f64,
    /// The same of i8.
    pub(crate) int: f64,
    /// Bytes per second from memory: one core alone, and all together.
    pub(crate) memory: [f64; 2],
    /// Bytes of the last-level cache.
    pub(crate) cache: u64,
}

impl Machine {
    /// Seconds of all cores that arithmetic alone takes.
    pub(crate) fn arithmetic(&self, float: f64, int: f64) -> f64 {
        float / self.float + int / self.int
    }

    /// Seconds that no order of `products` over the cores can beat.
    ///
    /// Each product takes at least its arithmetic on one core, and at least the time in which its B arrives
    /// at a core that has the memory to itself, unless B is still in the last-level cache; and all that
    /// arrives has to pass the memory of the machine. Only a B among `arguments` is counted, as what the
    /// program itself wrote may be in the cache; what else it reads and writes is not, and the cache is
    /// taken to hold nothing else.
    pub(crate) fn bound(&self, products: &[Product], arguments: &Mapped) -> Bound {
        let mut cache = Cache::new(self.cache);
        let cores = self.cores.get() as f64;
        let (mut busy, mut arrived): (f64, f64) = (0.0, 0.0);
        for product in products {
            let rate = if product.dtype == DType::I8 {
                self.int
            } else {
                self.float
            };
            let bytes = if arguments.contain(product.b) {
                cache.miss(product) as f64
            } else {
                0.0
            };
            busy += (product.operations() * cores / rate).max(bytes / self.memory[0]);
            arrived += bytes;
        }
        Bound {
            seconds: (busy / cores).max(arrived / self.memory[1]),
            arrived,
        }
    }
}

/// What [`Machine::bound`] says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) seconds: f64,
    /// Bytes of right operands that came from memory.
    pub(crate) arrived: f64,
}

/// Right operands in the cache, the one used longest ago first.
struct Cache {
    capacity: u64,
    used: u64,
    held: Vec<(Key, u64)>,
}

/// Products of one key read the same B.
type Key = (usize, usize, usize, DType);

impl Cache {
    fn new(capacity: u64) -> Self {
        Self {
            capacity,
            used: 0,
            held: Vec::new(),
        }
    }

    /// Bytes of the product's B that are not in the cache; they are now.
    fn miss(&mut self, product: &Product) -> u64 {
        let (key, bytes) = ((product.b, product.n, product.k, product.dtype), product.bytes_of_b());
        if let Some(at) = self.held.iter().rposition(|(held, _)| *held == key) {
            let entry = self.held.remove(at);
            self.held.push(entry);
            return 0;
        }
        self.held.push((key, bytes));
        self.used += bytes;
        let mut out = 0;
        while self.used > self.capacity && out < self.held.len() {
            self.used -= self.held[out].1;
            out += 1;
        }
        self.held.drain(..out);
        bytes
    }
}

/// What is mapped at one time.
pub(crate) struct Mapped(Vec<Range<usize>>);

impl Mapped {
    /// What is mapped now.
    pub(crate) fn now() -> io::Result<Self> {
        let range = |line: &str| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
        };
        Ok(Self(
            std::fs::read_to_string("/proc/self/maps")?
                .lines()
                .filter_map(range)
                .collect(),
        ))
    }

    fn contain(&self, address: usize) -> bool {
        self.0.iter().any(|range| range.contains(&address))
    }
}

/// Bytes of the last-level cache of the first core, where the system tells.
pub(crate) fn last_level_cache() -> Option<u64> {
    let level = |index: u32| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        let kib: u64 = text.trim().strip_suffix('K')?.parse().ok()?;
        Some(kib << 10)
    };
    (0..8).filter_map(level).max()
}

/// Bytes per second of all threads together, each reading an area of its own that is too large for any cache.
pub(crate) fn memory_rate(threads: usize) -> f64 {
    const AREA: usize = 128 << 20;
    // In memory of the kind that the programs' weights are in: the pages matter.
    let areas: Vec<Tensor> = (0..threads).map(|_| Tensor::zeros(DType::I8, &[AREA])).collect();
    areas.iter().for_each(|area| area.write::<i8>().fill(1));
    let guards: Vec<_> = areas.iter().map(Tensor::read::<i8>).collect();
    let time = times(threads, |thread| {
        let area = Tile::new(&guards[thread], 1, AREA);
        move || touch(area.row(0))
    })[0];
    (threads * AREA) as f64 / time.as_secs_f64()
}
