//! What a slice is, whose time it takes, and that reads outlive their tasks, by a simulated clock.

use nearside_clock::{SimClock, TscClock};
use nearside_device::Namespace;
use nearside_device::throttle::Bucket;
use nearside_dma::Memory;
use nearside_dma::cpu::thread_cpu_ns;
use nearside_ftl::FlashStore;
use nearside_media::Medium;
use nearside_media::nand::p3700;
use nearside_media::xpoint::Device;
use nearside_store::{Access as FileAccess, Delay, Dram, File, FileOptions, Modelled, Parametric};

use super::window::READS;
use super::*;
use crate::meters::{Held, Slices};

type Slow = Modelled<Dram, Parametric>;
type Tasks = Executor<u32>;
type Rig = (Arc<Namespace<Slow>>, Tasks, SimClock, Arc<Meters>);

fn executor(delay_ns: u64) -> Rig {
    let clock = SimClock::new();
    let (namespace, executor, meters) = executor_by(Arc::new(clock.clone()), delay_ns);
    (namespace, executor, clock, meters)
}

fn executor_by(clock: Arc<dyn Clock>, delay_ns: u64) -> (Arc<Namespace<Slow>>, Tasks, Arc<Meters>) {
    executor_over(clock, modelled(Delay::fixed(delay_ns).medium()))
}

fn modelled<M: Medium>(medium: M) -> Modelled<Dram, M> {
    Modelled::new(Dram::new(1 << 20, 512).unwrap(), medium)
}

fn executor_over<S: Store>(clock: Arc<dyn Clock>, store: S) -> (Arc<Namespace<S>>, Tasks, Arc<Meters>) {
    let namespace = Arc::new(Namespace::new(store, (), 512, [0; 16], true).unwrap());
    let access = namespace.access(Arc::new(Memory::new())).unwrap();
    let meters = Arc::new(Meters::default());
    let executor = Executor::new(access, clock, meters.clone());
    (namespace, executor, meters)
}

/// Works so long at a time, yielding between.
async fn work<M: Media>(media: M, clock: SimClock, pieces: Vec<u64>) -> u32 {
    let mut done = 0;
    for ns in pieces {
        clock.advance(ns);
        done += 1;
        media.yield_now().await;
    }
    done
}

#[test]
fn slices_are_counted_and_none_takes_longer_than_its_pieces_make_it() {
    let (_namespace, mut executor, clock, meters) = executor(0);
    let mut finished = Vec::new();
    // Seven pieces of 4 us: each slice stops at the first yield after its time to yield.
    let at = clock.clone();
    executor.spawn(1, |media| work(media, at, vec![4_000; 7]));
    let mut slices = 0;
    while finished.is_empty() {
        executor.step(clock.now(), &mut Turn::new(), &mut finished);
        slices += 1;
    }
    assert_eq!(finished, [(1, 7)]);
    assert_eq!(slices, 2);
    let so_far = Slices { count: 2, over: 0, worst_ns: 16_000, total_ns: 28_000 };
    assert_eq!(meters.slices(), so_far);
    // A piece that is too long shows.
    let at = clock.clone();
    executor.spawn(2, |media| work(media, at, vec![1_000, 50_000]));
    while finished.len() < 2 {
        executor.step(clock.now(), &mut Turn::new(), &mut finished);
    }
    let over = meters.slices();
    assert_eq!((over.over, over.worst_ns, over.total_ns), (1, 51_000, 79_000));
    // Nothing to run is no slice.
    executor.step(clock.now(), &mut Turn::new(), &mut finished);
    assert_eq!(meters.slices(), over);
}

#[test]
fn what_a_helper_does_for_a_task_is_in_its_quota_too() {
    let clock = Arc::new(TscClock::new());
    let (_namespace, mut executor, _) = executor_by(clock.clone(), 0);
    // A thousandth of a processor.
    let quota = Arc::new(Bucket::new(1_000_000, 1));
    let account = Arc::new(Account::new(vec![quota.clone()]));
    let payer = Payer { account, ..Payer::default() };
    let begun = Arc::new(AtomicBool::new(false));
    let said = begun.clone();
    let burn = move || {
        said.store(true, Ordering::Relaxed);
        let begin = thread_cpu_ns().unwrap();
        while thread_cpu_ns().unwrap() < begin + 20_000_000 {}
    };
    executor.spawn_for(1, payer, |media| async move {
        media.offload(burn).await;
        1
    });
    let (mut finished, deadline) = (Vec::new(), clock.now() + 60_000_000_000);
    let owes = || quota.take(0, clock.now()) > clock.now() + 10_000_000_000;
    while !owes() {
        executor.step(clock.now(), &mut Turn::new(), &mut finished);
        if begun.load(Ordering::Relaxed) {
            // Also where nobody waits for its end.
            executor.cancel(1);
        }
        assert!(finished.is_empty() && clock.now() < deadline);
        std::thread::yield_now();
    }
}

#[test]
fn who_steps_is_told_that_a_helper_is_waited_for() {
    let clock = Arc::new(TscClock::new());
    let (_namespace, mut executor, _) = executor_by(clock.clone(), 0);
    let (go, gone) = std::sync::mpsc::channel::<()>();
    executor.spawn(1, |media| async move {
        media.offload(move || gone.recv().is_ok()).await;
        1
    });
    let mut finished = Vec::new();
    // Its first step hands it over.
    executor.step(clock.now(), &mut Turn::new(), &mut finished);
    assert!(executor.step(clock.now(), &mut Turn::new(), &mut finished).beside);
    go.send(()).unwrap();
    while finished.is_empty() {
        executor.step(clock.now(), &mut Turn::new(), &mut finished);
    }
    assert!(!executor.step(clock.now(), &mut Turn::new(), &mut finished).beside);
}

/// What is done soon, in the thread that steps where it is to be; what takes long is a helper's all the same.
#[test]
fn what_a_helper_would_soon_have_done_is_done_in_its_place() {
    for in_place in [false, true] {
        let clock = Arc::new(TscClock::new());
        let (_namespace, executor, _) = executor_by(clock.clone(), 0);
        let mut executor = executor.in_place(in_place);
        let here = std::thread::current().id();
        executor.spawn(1, move |media| async move {
            let where_now = || std::thread::current().id();
            let soon = media.offload(where_now).await == here;
            let long = media.offload_long(where_now).await == Some(here);
            u32::from(soon) + 2 * u32::from(long)
        });
        let mut finished = Vec::new();
        while finished.is_empty() {
            executor.step(clock.now(), &mut Turn::new(), &mut finished);
            std::thread::yield_now();
        }
        assert_eq!(finished, [(1, u32::from(in_place))]);
    }
}

#[test]
fn a_tasks_time_is_within_its_quota_and_no_other_waits_for_it() {
    let (_namespace, mut executor, clock, meters) = executor(0);
    let mut finished = Vec::new();
    // A quarter of a processor, of two tasks together.
    let quota = Arc::new(Bucket::new(250_000_000, 1));
    for key in 0..2 {
        let at = clock.clone();
        let account = Arc::new(Account::new(vec![quota.clone()]));
        let payer = Payer { account, ..Payer::default() };
        executor.spawn_for(key, payer, |media| work(media, at, vec![10_000; 1_000_000]));
    }
    let until = |clock: &SimClock, executor: &mut Tasks, end: u64, finished: &mut _| {
        let mut idle = 0;
        while clock.now() < Nanos(end) {
            let before = clock.now();
            let progress = executor.step(before, &mut Turn::new(), finished);
            if clock.now() == before {
                // Nobody looks again before there is something to do.
                let next = progress.next.unwrap();
                assert!(next > before, "a busy wait");
                clock.advance_to(next);
                idle += 1;
            }
        }
        idle
    };
    let idle = until(&clock, &mut executor, 2_000_000_000, &mut finished);
    let used = meters.slices().total_ns;
    assert!((500_000_000..=525_020_000).contains(&used), "{used}");
    assert!((100..2_000).contains(&idle), "{idle}");
    // One without a quota has what it wants.
    let at = clock.clone();
    executor.spawn(9, |media| work(media, at, vec![10_000; 10_000]));
    let begun = clock.now();
    while finished.is_empty() {
        let before = clock.now();
        let next = executor.step(before, &mut Turn::new(), &mut finished).next;
        if clock.now() == before
            && let Some(next) = next
        {
            clock.advance_to(next.max(before + 1));
        }
    }
    assert_eq!(finished, [(9, 10_000)]);
    assert!(clock.now().since(begun) < 140_000_000, "{:?}", clock.now().since(begun));
}

/// Steps until a time, or until a task has ended.
fn step_until(executor: &mut Tasks, clock: &SimClock, end: u64, finished: &mut Finished<u32>) {
    while finished.is_empty() && clock.now() < Nanos(end) {
        let before = clock.now();
        let next = executor.step(before, &mut Turn::new(), finished).next;
        if clock.now() == before
            && let Some(next) = next
        {
            clock.advance_to(next.max(before + 1));
        }
    }
}

#[test]
fn a_task_follows_a_quota_that_becomes_another_one() {
    const S: u64 = 1_000_000_000;
    let (_namespace, mut executor, clock, meters) = executor(0);
    let mut finished = Vec::new();
    // A thousandth of a processor, of which a long piece takes a hundred seconds' worth.
    let rate = |per_second| vec![Arc::new(Bucket::new(per_second, 1))];
    let account = Arc::new(Account::new(rate(1_000_000)));
    let (at, payer) = (clock.clone(), Payer { account: account.clone(), ..Payer::default() });
    let pieces = [vec![S / 10], vec![10_000; 100_000]].concat();
    executor.spawn_for(1, payer, |media| work(media, at, pieces));
    step_until(&mut executor, &clock, 10 * S, &mut finished);
    assert_eq!(meters.slices().total_ns, S / 10);
    // Half a processor: what is owed to the old one is forgotten.
    account.set(rate(S / 2));
    step_until(&mut executor, &clock, 11 * S, &mut finished);
    let used = meters.slices().total_ns - S / 10;
    assert!((4 * S / 10..=56 * S / 100).contains(&used), "{used}");
    // None, and one again.
    account.set(Vec::new());
    step_until(&mut executor, &clock, 11 * S + S / 4, &mut finished);
    let more = meters.slices().total_ns - S / 10 - used;
    assert!(more >= S / 10, "{more}");
    account.set(rate(1_000_000));
    let before = meters.slices().total_ns;
    step_until(&mut executor, &clock, 13 * S, &mut finished);
    let held = meters.slices().total_ns - before;
    assert!(held <= S / 100 && finished.is_empty(), "{held}");
    account.set(Vec::new());
    step_until(&mut executor, &clock, 20 * S, &mut finished);
    assert_eq!(finished.len(), 1);
}

#[test]
fn the_store_has_so_many_reads_at_a_time_and_all_get_theirs() {
    let (_namespace, mut executor, clock, meters) = executor(10_000);
    let mut finished = Vec::new();
    for key in 0..12 {
        executor.spawn(key, |media| async move {
            let mut batch = media.batch();
            for tag in 0..8 {
                batch.start(u64::from(tag) * 4096, 4096, tag);
            }
            let mut read = 0;
            while batch.next().await.is_some() {
                read += 1;
            }
            read
        });
    }
    // One that goes while its reads wait leaves none of them.
    executor.step(clock.now(), &mut Turn::new(), &mut finished);
    assert!(executor.cancel(11));
    let mut most = 0;
    while finished.len() < 11 {
        executor.step(clock.now(), &mut Turn::new(), &mut finished);
        most = most.max(lock(&executor.io).reads.len());
        clock.advance(1_000);
    }
    assert_eq!(most, 8);
    assert!(finished.iter().all(|(_, read)| *read == 8), "{finished:?}");
    while executor.in_flight() > 0 {
        executor.step(clock.now(), &mut Turn::new(), &mut finished);
        clock.advance(1_000);
    }
    assert_eq!(meters.held(), Held::default());
}

/// Most reads that a store has of a task's beside a host's I/O, and how long the host's take at most.
fn beside<S: Store>(store: S) -> (usize, u64) {
    let clock = SimClock::new();
    let (namespace, mut executor, _) = executor_over(Arc::new(clock.clone()), store);
    let mut host = namespace.access(Arc::new(Memory::new())).unwrap();
    let mut finished = Vec::new();
    // What was never written lies on no flash.
    let mut buffer = IoBuffer::new(1 << 20).unwrap();
    buffer.set_len(1 << 20);
    let write = Operation::Write { offset: 0, len: 1 << 20, fua: false };
    _ = host.submit(write, Data::Owned(buffer), Token(0), clock.now());
    while host.in_flight() > 0 {
        clock.advance(1_000_000);
        host.poll(clock.now(), &mut |_, _| {});
    }
    clock.advance(1_000_000_000);
    executor.spawn(1, |media| async move {
        loop {
            let mut batch = media.batch();
            for tag in 0..8 {
                let len = media.longest_read().min(64 << 10);
                batch.start(u64::from(tag) << 16, len as usize, tag);
            }
            while batch.next().await.is_some() {}
        }
    });
    let mut at_most = |steps: usize, with: bool| {
        let (mut most, mut longest, mut since) = (0, 0, clock.now());
        for _ in 0..steps {
            if with && host.in_flight() == 0 {
                let mut buffer = IoBuffer::new(4096).unwrap();
                buffer.set_len(4096);
                let read = Operation::Read { offset: 0, len: 4096 };
                let submitted = host.submit(read, Data::Owned(buffer), Token(0), clock.now());
                assert!(matches!(submitted, Submitted::Pending));
                since = clock.now();
            }
            executor.step(clock.now(), &mut Turn::new(), &mut finished);
            most = most.max(lock(&executor.io).reads.len());
            clock.advance(1_000);
            host.poll(clock.now(), &mut |_, _| longest = longest.max(clock.now().since(since)));
        }
        (most, longest)
    };
    at_most(12_000, false);
    assert_eq!(at_most(1_000, false).0, READS);
    // Those that it has are waited for.
    at_most(2_000, true);
    let (most, longest) = at_most(20_000, true);
    at_most(12_000, false);
    assert_eq!(at_most(1_000, false).0, READS);
    (most, longest)
}

#[test]
fn beside_a_hosts_io_reads_are_short_and_hardly_wait_for_each_other() {
    // A block has all of its channels: 8 us alone, and 6.8 us for each 16 KiB before it.
    let one_unit = beside(modelled(Device::prototype().medium()));
    assert!(one_unit.0 <= 3 && one_unit.1 <= 30_000, "{one_unit:?}");
    assert_eq!(beside(modelled(Delay::fixed(10_000).medium())), (READS, 10_000));
    // It has other units for most of them; a host's own read may meet one all the same.
    let drive = p3700().sized(64 << 20);
    assert_eq!(beside(FlashStore::new(drive, nearside_ftl::Config::default(), 512).unwrap()).0, READS);
}

#[test]
fn one_read_waits_for_no_more_than_one_of_each_other_task() {
    let (_namespace, mut executor, clock, _) = executor(10_000);
    let mut finished = Vec::new();
    for (key, reads) in (0..12).map(|key| (key, 64)).chain([(12, 1)]) {
        executor.spawn(key, move |media| async move {
            let mut batch = media.batch();
            for tag in 0..reads {
                batch.start(u64::from(tag) * 4096, 4096, tag);
            }
            while batch.next().await.is_some() {}
            reads
        });
    }
    while finished.is_empty() {
        executor.step(clock.now(), &mut Turn::new(), &mut finished);
        clock.advance(1_000);
    }
    assert_eq!(finished, [(12, 1)]);
    // The eight that the store had, and one of each of twelve.
    assert!(clock.now().0 <= 3 * 10_000 + 5_000, "{:?}", clock.now());
}

#[test]
fn a_turn_has_one_slice_whoever_takes_it() {
    let (_namespace, mut executor, clock, meters) = executor(0);
    let (at, mut finished) = (clock.clone(), Vec::new());
    executor.spawn(1, |media| work(media, at, vec![1_000]));
    let mut turn = Turn::new();
    assert!(turn.take());
    let progress = executor.step(clock.now(), &mut turn, &mut finished);
    assert_eq!((progress.worked, progress.next), (false, Some(clock.now())));
    assert_eq!(meters.slices().count, 0);
    executor.step(clock.now(), &mut Turn::new(), &mut finished);
    assert_eq!((meters.slices().count, finished.len()), (1, 1));
}

#[test]
fn a_task_with_much_to_do_starves_no_other() {
    let (_namespace, mut executor, clock, _) = executor(0);
    let mut finished = Vec::new();
    for key in 0..3 {
        let at = clock.clone();
        executor.spawn(key, |media| work(media, at, vec![15_000; 1_000_000]));
    }
    let at = clock.clone();
    executor.spawn(9, |media| work(media, at, vec![15_000; 5]));
    for slices in 1.. {
        executor.step(clock.now(), &mut Turn::new(), &mut finished);
        if finished.is_empty() {
            assert!(slices < 5 * 4 + 4, "each of four has every fourth slice");
        } else {
            break;
        }
    }
    assert_eq!(finished, [(9, 5)]);
}

#[test]
fn whatever_goes_first_no_read_is_lost() {
    for way in 0..3 {
        let (namespace, mut executor, clock, meters) = executor(50_000);
        let mut finished = Vec::new();
        for key in 0..4 {
            executor.spawn(key, |media| async move {
                let mut batch = media.batch();
                (0..4).for_each(|n| {
                    batch.start(n * 65536, 65536, n as u32);
                });
                while batch.next().await.is_some() {}
                0
            });
        }
        executor.step(clock.now(), &mut Turn::new(), &mut finished);
        assert_eq!(meters.held(), Held { tasks: 4, reads: 16, buffers: 0 });
        assert_eq!((executor.in_flight(), namespace.stripes_held()), (16, 16));
        match way {
            // They are waited for.
            0 => {}
            // The tasks go, the executor stays.
            1 => (0..4).for_each(|key| assert!(executor.cancel(key) && !executor.cancel(key))),
            // All goes.
            _ => {
                drop(executor);
                assert_eq!((meters.held(), namespace.orphans_in_flight()), (Held::default(), READS));
                assert!(namespace.stripes_held() > 0);
                let due = namespace.poll_orphans(clock.now()).unwrap();
                clock.advance_to(due);
                assert_eq!(namespace.poll_orphans(clock.now()), None);
                assert_eq!((namespace.orphans_in_flight(), namespace.stripes_held()), (0, 0));
                continue;
            }
        }
        for _ in 0..4 {
            clock.advance(50_000);
            executor.step(clock.now(), &mut Turn::new(), &mut finished);
        }
        assert_eq!(finished.len(), if way == 0 { 4 } else { 0 });
        assert_eq!((executor.in_flight(), meters.held()), (0, Held::default()));
        assert_eq!((namespace.stripes_held(), namespace.orphans_in_flight()), (0, 0));
        assert!(lock(&executor.io).pool.len() >= 4, "buffers are used again");
    }
}

/// Of a file that nobody writes a batch has the bytes where the page cache has them; a read by itself is
/// copied all the same, and a namespace that hosts can write lends nothing.
#[test]
fn what_the_store_lends_is_not_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![7; 64 << 10]).unwrap();
    for read_only in [true, false] {
        let access = if read_only { FileAccess::Read } else { FileAccess::Serve };
        let options = FileOptions { access, lends: true, ..FileOptions::read() };
        let store = File::open(file.path(), options).unwrap();
        let namespace = Arc::new(Namespace::new(store, (), 512, [0; 16], true).unwrap());
        let access = namespace.access(Arc::new(Memory::new())).unwrap();
        let clock = SimClock::new();
        let mut executor = Executor::new(access, Arc::new(clock.clone()), Arc::default());
        let mut finished = Vec::new();
        executor.spawn(1, |media| async move {
            let mut batch = media.batch();
            batch.start(4096, 8192, 5);
            let (tag, bytes) = batch.next().await.unwrap();
            let bytes = bytes.unwrap();
            assert_eq!((tag, bytes.as_ref()), (5, &[7; 8192][..]));
            let alone = media.read(4096, 8192).await.unwrap();
            assert!(matches!(alone.held, Some(super::Held::Read(_))) && alone.as_ref() == bytes.as_ref());
            matches!(bytes.held, Some(super::Held::Lent(_)))
        });
        while finished.is_empty() {
            executor.step(clock.now(), &mut Turn::new(), &mut finished);
            std::thread::yield_now();
        }
        assert_eq!(finished, [(1, read_only)]);
    }
}
