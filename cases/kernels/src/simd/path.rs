//! Which instruction set a product runs on.

use std::sync::LazyLock;

/// An instruction path. The better ones come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// AVX-512 F, BW, VL and VNNI: 16 lanes, and four i8 products per lane and instruction.
    Avx512,
    /// AVX2 and FMA: 8 lanes; i8 is widened to i16 and multiplied in pairs.
    Avx2,
    /// Plain Rust that the compiler vectorises for the build target.
    Portable,
}

/// A path that this machine was found to support: the licence to call its target-feature functions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Supported(Path);

impl Supported {
    pub(crate) fn path(self) -> Path {
        self.0
    }
}

#[cfg(test)]
thread_local! {
    /// What `Path::best` says on this thread instead.
    static FORCED: std::cell::Cell<Option<Path>> = const { std::cell::Cell::new(None) };
}

impl Path {
    /// All paths, best first.
    pub const ALL: [Self; 3] = [Self::Avx512, Self::Avx2, Self::Portable];

    /// Whether this machine can run the path.
    pub fn is_supported(self) -> bool {
        static FOUND: LazyLock<[bool; 2]> = LazyLock::new(detect);
        match self {
            Self::Avx512 => FOUND[0],
            Self::Avx2 => FOUND[1],
            Self::Portable => true,
        }
    }

    /// The fastest path of this machine.
    pub fn best() -> Self {
        static BEST: LazyLock<Path> = LazyLock::new(|| {
            let mut supported = Path::ALL.into_iter().filter(|path| path.is_supported());
            supported.next().expect("the portable path is always there")
        });
        #[cfg(test)]
        if let Some(path) = FORCED.get() {
            return path;
        }
        *BEST
    }

    /// Runs `body` on every path that this machine supports, as if it were the best.
    #[cfg(test)]
    pub(crate) fn for_each(body: impl Fn(Self)) {
        for path in Self::ALL.into_iter().filter(|path| path.is_supported()) {
            FORCED.set(Some(path));
            body(path);
            FORCED.set(None);
        }
    }

    /// Name for reports: `avx512`, `avx2`, `portable`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::Portable => "portable",
        }
    }

    #[track_caller]
    pub(crate) fn checked(self) -> Supported {
        assert!(self.is_supported(), "this machine has no {}", self.name());
        Supported(self)
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> [bool; 2] {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx512 = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni");
    [avx512, avx2]
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> [bool; 2] {
    [false, false]
}
