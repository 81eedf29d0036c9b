//! Turns of two programs that are measured beside each other.
//!
//! Machines change their speed within a second by more than the slowdowns that matter. Process runs that
//! follow each other are seconds apart; timed dispatches that alternate are neighbours. Each program says
//! over a pipe that it is ready for its next timed dispatch, and waits for its turn from another one. The
//! order is A/B/B/A, and no turn is given before both are ready, so that nobody's setup disturbs a
//! measurement. What a program waits is no part of its budgets ([`Waits`]).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};

use crate::process::Waits;

/// How long it takes at most until an end or an interrupt is seen.
const GLANCE: Duration = Duration::from_millis(50);

/// The pipes of one program, by the names that it opens them by.
#[derive(Clone, Debug)]
pub struct Pipes {
    /// Where it waits for its turn.
    pub take: PathBuf,
    /// Where it says that it is ready.
    pub done: PathBuf,
    /// Whether it waits: for whoever watches its budgets.
    pub waits: Waits,
}

impl Pipes {
    /// Makes both pipes.
    fn create(take: PathBuf, done: PathBuf) -> io::Result<Self> {
        for path in [&take, &done] {
            mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?;
        }
        let waits = Waits::default();
        Ok(Self { take, done, waits })
    }

    /// As the command line of a program has them.
    pub fn argument(&self) -> String {
        format!("{},{}", self.take.display(), self.done.display())
    }
}

/// Our ends of a program's pipes.
#[derive(Debug)]
struct Ends {
    take: File,
    done: File,
    waits: Waits,
}

impl Ends {
    /// Opens both ends of both pipes, so that nobody ever waits for the other side to open one.
    fn open(pipes: &Pipes) -> io::Result<Self> {
        let open = |path: &Path| {
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
        };
        Ok(Self {
            take: open(&pipes.take)?,
            done: open(&pipes.done)?,
            waits: pipes.waits.clone(),
        })
    }

    /// Waits a moment for the program to be ready; from then on it waits.
    fn is_ready(&self, moment: Duration) -> bool {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: moment.subsec_nanos().into(),
        };
        // An interrupted poll is a look too early; there will be another one.
        let _ = poll(&mut [PollFd::new(&self.done, PollFlags::IN)], Some(&timeout));
        let ready = matches!((&self.done).read(&mut [0]), Ok(1));
        if ready {
            self.waits.begin();
        }
        ready
    }

    /// Gives the program its turn. A pipe that can't take one more byte holds turns enough.
    fn give(&self) {
        self.waits.end();
        let _ = (&self.take).write(b".");
    }
}

/// Gives turns to two programs.
#[derive(Debug)]
pub struct Turnstile {
    pipes: [Pipes; 2],
    ends: [Ends; 2],
}

impl Turnstile {
    /// Makes the pipes of both programs in `directory`, which exists.
    ///
    /// What can fail fails here, before there is a program that would wait for its turn.
    pub fn create(directory: &Path) -> io::Result<Self> {
        let pipes = |side: &str| {
            let path = |what: &str| directory.join(format!("{side}.{what}"));
            Pipes::create(path("take"), path("done"))
        };
        let pipes = [pipes("a")?, pipes("b")?];
        let ends = [Ends::open(&pipes[0])?, Ends::open(&pipes[1])?];
        Ok(Self { pipes, ends })
    }

    /// The pipes of the first and of the second program.
    pub fn pipes(&self) -> &[Pipes; 2] {
        &self.pipes
    }

    /// Gives each program `rounds` turns, until both have ended.
    ///
    /// `has_ended` says whether a program is gone; who is gone has no turn, and the other goes on alone.
    /// `glance` is called all the while: before every turn, and at least every [`GLANCE`].
    pub fn preside(&self, rounds: u32, has_ended: &dyn Fn(usize) -> bool, glance: &mut dyn FnMut()) {
        let _counted_again = CountedAgain(&self.ends);
        let mut present = [true; 2];
        // Both at once: who is ready first begins to wait then, and not when the other one is ready too.
        self.wait_for(&[0, 1], &mut present, has_ended, glance);
        for round in 0..rounds {
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for side in order {
                if present[side] {
                    self.ends[side].give();
                    self.wait_for(&[side], &mut present, has_ended, glance);
                }
            }
        }
        // Both are ready once more: for their ends, or for what nobody announced, such as another attempt.
        self.ends.iter().for_each(Ends::give);
        while !(has_ended(0) && has_ended(1)) {
            for end in &self.ends {
                if end.is_ready(GLANCE / 2) {
                    end.give();
                }
            }
            glance();
        }
    }

    /// Waits until each of `sides` is ready, or gone and no longer `present`.
    fn wait_for(
        &self,
        sides: &[usize],
        present: &mut [bool; 2],
        has_ended: &dyn Fn(usize) -> bool,
        glance: &mut dyn FnMut(),
    ) {
        let mut awaited = sides.to_vec();
        while !awaited.is_empty() {
            glance();
            let moment = GLANCE / awaited.len() as u32;
            awaited.retain(|&side| {
                if self.ends[side].is_ready(moment) {
                    return false;
                }
                present[side] = !has_ended(side);
                present[side]
            });
        }
    }
}

/// When nobody gives turns any more, whyever, budgets count again: else a program that waits would do so for ever.
struct CountedAgain<'a>(&'a [Ends; 2]);

impl Drop for CountedAgain<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|ends| ends.waits.end());
    }
}

impl Drop for Turnstile {
    /// Pipes are of no use to whoever reads the run later.
    fn drop(&mut self) {
        for pipes in &self.pipes {
            let _ = std::fs::remove_file(&pipes.take);
            let _ = std::fs::remove_file(&pipes.done);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    /// A program as the kernels are: ready, turn, dispatch, and so on, and once more before it ends.
    fn program(pipes: &Pipes, dispatches: u32, dispatch: &dyn Fn()) {
        let mut take = File::open(&pipes.take).unwrap();
        let mut done = OpenOptions::new().write(true).open(&pipes.done).unwrap();
        for turn in 0..=dispatches {
            done.write_all(b".").unwrap();
            take.read_exact(&mut [0]).unwrap();
            if turn < dispatches {
                dispatch();
            }
        }
    }

    /// Who dispatched when, where the two programs dispatch so often each and are promised `rounds` turns.
    fn order(rounds: u32, dispatches: [u32; 2]) -> String {
        let directory = tempfile::tempdir().unwrap();
        let turnstile = Turnstile::create(directory.path()).unwrap();
        let told = Mutex::new(String::new());
        let ended = [AtomicBool::new(false), AtomicBool::new(false)];
        std::thread::scope(|scope| {
            for side in [0, 1] {
                let (turnstile, told, ended) = (&turnstile, &told, &ended);
                scope.spawn(move || {
                    program(&turnstile.pipes()[side], dispatches[side], &|| {
                        told.lock().unwrap().push(['A', 'B'][side]);
                    });
                    ended[side].store(true, Ordering::SeqCst);
                });
            }
            let has_ended = |side: usize| ended[side].load(Ordering::SeqCst);
            turnstile.preside(rounds, &has_ended, &mut || {});
        });
        told.into_inner().unwrap()
    }

    #[test]
    fn turns_alternate_and_nobody_is_first_more_often() {
        assert_eq!(order(4, [4, 4]), "ABBAABBA");
        assert_eq!(order(1, [1, 1]), "AB");
    }

    #[test]
    fn who_ends_early_leaves_the_other_alone() {
        assert_eq!(order(3, [3, 0]), "AAA");
        let left = order(4, [1, 4]);
        assert_eq!((left.matches('A').count(), left.matches('B').count()), (1, 4));
    }

    #[test]
    fn more_dispatches_than_announced_don_t_hang() {
        let more = order(1, [3, 3]);
        assert_eq!((more.matches('A').count(), more.matches('B').count()), (3, 3));
    }

    #[test]
    fn a_glance_is_taken_before_every_turn_however_quick_the_programs_are() {
        let directory = tempfile::tempdir().unwrap();
        let turnstile = Turnstile::create(directory.path()).unwrap();
        let given = AtomicU32::new(0);
        let ended = AtomicBool::new(false);
        // Turns that were given since the last glance: an interrupt must not wait for the end of the benchmark.
        let (mut seen, mut deaf) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                program(&turnstile.pipes()[0], 200, &|| {
                    given.fetch_add(1, Ordering::SeqCst);
                });
                ended.store(true, Ordering::SeqCst);
            });
            let has_ended = |side: usize| side == 1 || ended.load(Ordering::SeqCst);
            turnstile.preside(200, &has_ended, &mut || {
                let now = given.load(Ordering::SeqCst);
                deaf = deaf.max(now - seen);
                seen = now;
            });
        });
        assert_eq!(given.load(Ordering::SeqCst), 200);
        assert!(deaf <= 2, "{deaf} turns without a glance");
    }

    #[test]
    fn no_pipe_is_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        drop(Turnstile::create(directory.path()).unwrap());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
