//! What a task's closure sees of the runtime: the block that it is, and its declared arguments.

use std::fmt::Write as _;

use crate::argument::{Argument, Direction};
use crate::claims::{Access, Claimant};
use crate::element::Element;
use crate::guard::{ReadGuard, TileGuard, TileMutGuard, WriteGuard};
use crate::halt::{Halted, StopFlag};
use crate::memory::Memory;
use crate::signal::{Cmp, Signals};
use crate::tensor::Tensor;

/// One block of a running task, on one core.
///
/// Tensors are accessed through the block, and only those that the task declared: an access that
/// the scheduler doesn't know of would run at a time that nobody has ordered.
#[derive(Debug)]
pub struct Block<'a> {
    task: &'static str,
    index: usize,
    count: usize,
    core: usize,
    arguments: &'a [Argument],
    stop: &'a StopFlag,
}

impl<'a> Block<'a> {
    /// Block `index` of `count` of the task `task`, running on `core`.
    pub(crate) fn new(
        task: &'static str,
        index: usize,
        count: usize,
        core: usize,
        arguments: &'a [Argument],
        stop: &'a StopFlag,
    ) -> Self {
        Self {
            task,
            index,
            count,
            core,
            arguments,
            stop,
        }
    }

    /// Number of this block, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Number of blocks of the task.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Number of the core that runs the block, from 0.
    pub fn core(&self) -> usize {
        self.core
    }

    /// Whether the run is ending early; long loops look here and return.
    pub fn stopping(&self) -> bool {
        self.stop.is_raised()
    }

    /// Fresh output `i` of the task, counted from 0 in the order of their declaration.
    ///
    /// # Panics
    /// When the task declared no such output.
    #[track_caller]
    pub fn output(&self, i: usize) -> Tensor {
        let outputs = || {
            self.arguments
                .iter()
                .filter(|argument| argument.direction == Direction::Output)
        };
        match outputs().nth(i) {
            Some(output) => output.tensor.clone(),
            None => panic!("output {i} of task `{}`, which has {}", self.task, outputs().count()),
        }
    }

    /// Shared access to an argument, or a view of one, without gaps.
    ///
    /// # Panics
    /// When no argument that may be read covers it, on another element type, on gaps, and when
    /// somebody writes any of it at this moment. An argument that was declared write-only may not
    /// be read: nothing orders the task behind those who wrote it before.
    #[track_caller]
    pub fn read<T: Element>(&self, tensor: &Tensor) -> ReadGuard<'_, T> {
        ReadGuard::claim(self.declared(tensor, Access::Read), tensor, self.claimant())
    }

    /// Exclusive access to an argument, or a view of one, without gaps.
    ///
    /// # Panics
    /// When no argument that may be written covers it, on another element type, on gaps, and when
    /// somebody accesses any of it at this moment.
    #[track_caller]
    pub fn write<T: Element>(&self, tensor: &Tensor) -> WriteGuard<'_, T> {
        WriteGuard::claim(self.declared(tensor, Access::Write), tensor, self.claimant())
    }

    /// Shared access to an argument, or a view of one, whose leading axes fold to one row distance.
    ///
    /// # Panics
    /// As [`read`](Self::read), but for gaps between rows, which are allowed.
    #[track_caller]
    pub fn tile<T: Element>(&self, tensor: &Tensor) -> TileGuard<'_, T> {
        TileGuard::claim(self.declared(tensor, Access::Read), tensor, self.claimant())
    }

    /// Exclusive access to an argument, or a view of one, whose leading axes fold to one row distance.
    ///
    /// # Panics
    /// As [`write`](Self::write), but for gaps between rows, which are allowed.
    #[track_caller]
    pub fn tile_mut<T: Element>(&self, tensor: &Tensor) -> TileMutGuard<'_, T> {
        TileMutGuard::claim(self.declared(tensor, Access::Write), tensor, self.claimant())
    }

    /// Waits until signal `i` compares as asked, while the core gives way to other threads.
    ///
    /// What the peer did before it set the signal is visible afterwards, and the claims that it had
    /// given back by then are gone. `Err` when the run is stopping.
    ///
    /// # Panics
    /// When there is no such signal.
    #[track_caller]
    pub fn wait_signal(&self, signals: &Signals, i: usize, cmp: Cmp, value: i32) -> Result<(), Halted> {
        signals.wait(i, cmp, value, self.stop)
    }

    fn claimant(&self) -> Claimant {
        Claimant::Block {
            task: self.task,
            block: self.index,
        }
    }

    /// The memory of `tensor`, borrowed from the argument that covers it.
    #[track_caller]
    fn declared(&self, tensor: &Tensor, access: Access) -> &'a Memory {
        let allowed = |argument: &&Argument| argument.direction.allows(access) && argument.tensor.covers(tensor);
        match self.arguments.iter().find(allowed) {
            Some(argument) => argument.tensor.memory(),
            None => self.refuse(tensor, access),
        }
    }

    #[cold]
    #[track_caller]
    fn refuse(&self, tensor: &Tensor, access: Access) -> ! {
        let mut declared = String::new();
        for (i, Argument { tensor, direction }) in self.arguments.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(declared, "{comma}{direction} {tensor:?}").expect("a string takes everything");
        }
        let verb = match access {
            Access::Read => "reads",
            Access::Write => "writes",
        };
        panic!(
            "{} {verb} {tensor:?} ({}), which no argument declared for that covers; declared: {declared}",
            self.claimant(),
            tensor.footprint()
        );
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::element::DType;

    fn declared(direction: Direction, tensor: &Tensor) -> Argument {
        Argument {
            tensor: tensor.clone(),
            direction,
        }
    }

    /// Runs `body` as block 1 of 2 of a task `mix` with these arguments.
    fn with_block(arguments: &[Argument], body: impl FnOnce(&Block<'_>)) {
        body(&Block::new("mix", 1, 2, 0, arguments, &StopFlag::new()));
    }

    fn matrix(name: &'static str) -> Tensor {
        Tensor::zeros(DType::F32, &[4, 8]).named(name)
    }

    #[test]
    fn views_of_arguments_are_accessible_in_their_direction() {
        let (x, y, z) = (matrix("x"), matrix("y"), matrix("z"));
        let arguments = [
            declared(Direction::Input, &x),
            declared(Direction::InOut, &y),
            declared(Direction::Output, &z),
        ];
        with_block(&arguments, |block| {
            assert_eq!(
                (block.index(), block.count(), block.core(), block.stopping()),
                (1, 2, 0, false)
            );
            let right = |t: &Tensor| t.view(&[0, 4], &[4, 4]);
            let (source, mut sink) = (block.tile::<f32>(&right(&x)), block.tile_mut::<f32>(&right(&y)));
            sink.tile_mut().fill(2.0);
            assert_eq!(
                (source.tile().row(3), sink.tile().row(3)),
                (&[0.0; 4][..], &[2.0; 4][..])
            );
            block.write::<f32>(&block.output(0).rows(1..2)).fill(3.0);
            assert_eq!(block.read::<f32>(&z)[7..10], [0.0, 3.0, 3.0]);
        });
        assert_eq!(y.read::<f32>()[..8], [0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn two_windows_of_one_matrix_are_written_at_the_same_time() {
        let x = matrix("x");
        with_block(&[declared(Direction::InOut, &x)], |block| {
            let (left, right) = (x.view(&[0, 0], &[4, 3]), x.view(&[0, 3], &[4, 5]));
            let (mut left, mut right) = (block.tile_mut::<f32>(&left), block.tile_mut::<f32>(&right));
            let (mut left, mut right) = (left.tile_mut(), right.tile_mut());
            for row in 0..4 {
                left.row_mut(row).fill(1.0);
                right.row_mut(row).fill(2.0);
            }
        });
        assert_eq!(x.read::<f32>()[8..16], [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn threads_write_windows_of_one_matrix_and_read_each_other() {
        const THREADS: usize = 4;
        const COLS: usize = 5;
        let x = Tensor::zeros(DType::I32, &[7, THREADS * COLS]).named("x");
        let (arguments, stop) = ([declared(Direction::InOut, &x)], StopFlag::new());
        let barrier = std::sync::Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (x, arguments, stop, barrier) = (&x, &arguments, &stop, &barrier);
                scope.spawn(move || {
                    let block = Block::new("mix", thread, THREADS, thread, arguments, stop);
                    let window = |of: usize| x.view(&[0, of * COLS], &[7, COLS]);
                    for round in 0..500 {
                        let mine = (round * THREADS + thread) as i32;
                        block.tile_mut::<i32>(&window(thread)).tile_mut().fill(mine);
                        barrier.wait();
                        let next = (thread + 1) % THREADS;
                        let theirs = (round * THREADS + next) as i32;
                        let guard = block.tile::<i32>(&window(next));
                        for row in 0..7 {
                            assert_eq!(guard.tile().row(row), [theirs; COLS]);
                        }
                        drop(guard);
                        barrier.wait();
                    }
                });
            }
        });
    }

    #[test]
    fn a_window_covers_what_lies_in_it_only() {
        let x = Tensor::zeros(DType::I8, &[3, 4, 5]);
        let window = x.view(&[1, 1, 1], &[2, 2, 3]);
        let inside = [
            ([1, 1, 1], [2, 2, 3]),
            ([2, 2, 3], [1, 1, 1]),
            ([1, 2, 1], [2, 1, 3]),
            ([0, 0, 0], [0, 4, 5]),
        ];
        let outside = [
            ([1, 1, 0], [1, 1, 2]),
            ([1, 0, 1], [1, 2, 3]),
            ([1, 1, 2], [1, 1, 3]),
            ([0, 1, 1], [2, 2, 3]),
            ([1, 3, 1], [1, 1, 3]),
        ];
        for (offsets, dims) in inside {
            assert!(window.covers(&x.view(&offsets, &dims)), "{offsets:?} {dims:?}");
        }
        for (offsets, dims) in outside {
            assert!(!window.covers(&x.view(&offsets, &dims)), "{offsets:?} {dims:?}");
        }
    }

    #[test]
    #[should_panic(
        expected = "block 1 of task `mix` writes `x` f32 [1, 8] (bytes 32..64), which no argument declared for that covers; declared: input `x` f32 [4, 8], write `y` f32 [4, 8]"
    )]
    fn writing_an_input_panics() {
        let (x, y) = (matrix("x"), matrix("y"));
        with_block(
            &[declared(Direction::Input, &x), declared(Direction::Write, &y)],
            |block| {
                block.write::<f32>(&x.rows(1..2)).fill(0.0);
            },
        );
    }

    #[test]
    #[should_panic(expected = "block 1 of task `mix` reads `y`")]
    fn reading_a_write_only_argument_panics() {
        let y = matrix("y");
        with_block(&[declared(Direction::Write, &y)], |block| {
            block.read::<f32>(&y);
        });
    }

    #[test]
    #[should_panic(expected = "reads `y` f32 [4, 8] (bytes 0..128), which no argument")]
    fn reading_what_was_not_declared_panics() {
        with_block(&[declared(Direction::InOut, &matrix("x"))], |block| {
            block.read::<f32>(&matrix("y"));
        });
    }

    #[test]
    #[should_panic(expected = "reads `x` f32 [4, 8] (bytes 0..128), which no argument")]
    fn reading_beyond_the_declared_view_panics() {
        let x = matrix("x");
        with_block(&[declared(Direction::Input, &x.rows(0..3))], |block| {
            block.read::<f32>(&x);
        });
    }

    #[test]
    #[should_panic(
        expected = "conflicting access: block 1 of task `mix` writes `x` (4 rows of 16 B, 32 B apart, from byte 8), while block 1 of task `mix` writes `x` (4 rows of 12 B, 32 B apart, from byte 0)"
    )]
    fn overlapping_windows_panic() {
        let x = matrix("x");
        with_block(&[declared(Direction::InOut, &x)], |block| {
            let (left, right) = (x.view(&[0, 0], &[4, 3]), x.view(&[0, 2], &[4, 4]));
            let _left = block.tile_mut::<f32>(&left);
            let _right = block.tile_mut::<f32>(&right);
        });
    }

    #[test]
    #[should_panic(expected = "don't fold to one row distance")]
    fn a_tile_of_a_box_panics() {
        let x = Tensor::zeros(DType::F32, &[4, 4, 4]);
        with_block(&[declared(Direction::Input, &x)], |block| {
            block.tile::<f32>(&x.view(&[0, 0, 0], &[2, 2, 2]));
        });
    }

    #[test]
    #[should_panic(expected = "output 1 of task `mix`, which has 1")]
    fn an_output_that_is_not_there_panics() {
        with_block(&[declared(Direction::Output, &matrix("x"))], |block| {
            block.output(1);
        });
    }
}
