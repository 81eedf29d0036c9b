//! A stage that is wrong is found and named; the ones that get its streams are not blamed.

use std::collections::BTreeSet;
use std::time::Duration;

use ring_runtime::Tensor;

use crate::check::{AMPLE, PATIENT, config, fresh_seed};
use crate::compare::{Outcome, TensorVerdict};
use crate::dispatch::Session;
use crate::kernel::{Kernel, Params};
use crate::ops::decode_fwd::{self, DecodeFwd};
use crate::ops::decode_layer::attention::AttentionArgs;

/// Puts a copy into `place` that `spoil` has changed; what is returned puts the right values back into it.
fn spoiled<S: FnOnce(&Tensor)>(place: &mut Tensor, spoil: S) -> impl Fn() + use<S> {
    let (right, wrong) = (place.snapshot(), place.snapshot());
    spoil(&wrong);
    *place = wrong.clone();
    move || wrong.copy_from(&right)
}

fn failed(verdicts: &[TensorVerdict]) -> Vec<&TensorVerdict> {
    verdicts.iter().filter(|v| !v.passed()).collect()
}

/// Two mistakes in one pass of five layers: the shared expert of layer 3 has too large a scale on rank 1, and in layer 1
/// two requests write to each other's row of the cache on rank 0.
#[test]
fn a_wrong_stage_is_named_and_no_other() {
    let seed = fresh_seed();
    let defaults: [(&str, &str); 0] = [];
    let info = DecodeFwd.info();
    let params = Params::resolve(info.name, info.params, &defaults).unwrap();
    let mut case = decode_fwd::case(&params, seed);
    let mend_scale = spoiled(&mut case.ranks[1].experts[3].shared.down.scales, |scales| {
        scales.write::<f32>().iter_mut().for_each(|s| *s *= 1.25);
    });
    let AttentionArgs::Hca(block) = &mut case.ranks[0].attention[1] else {
        panic!("layer 1 is HCA");
    };
    let mend_slots = spoiled(&mut block.block.slot_mapping, |slots| slots.write::<i64>().swap(0, 2));
    let mut session = Session::new(Box::new(case), &config(AMPLE, PATIENT)).unwrap();

    let dispatch = session.dispatch(Duration::ZERO);
    assert!(dispatch.passed(), "seed {seed}: {:#?}", dispatch.failure());
    mend_scale();
    mend_slots();
    let verdicts = session.instance().validate();
    let found = failed(&verdicts);
    // Whether the swapped rows are seen in the streams as well is up to how much attention they get.
    let names: BTreeSet<&str> = found
        .iter()
        .map(|v| &*v.name)
        .filter(|name| !name.ends_with("x_out"))
        .collect();
    let expected = [
        "layer 1, HCA attention, rank 0: kv_cache",
        "layer 3, experts, rank 1: x_next",
    ];
    assert_eq!(names, BTreeSet::from(expected), "seed {seed}: {found:#?}");
    let streams = found.iter().filter(|v| v.name.ends_with("x_out"));
    streams.for_each(|v| assert_eq!(v.name, "layer 1, HCA attention, rank 0: x_out", "seed {seed}"));
    for verdict in found {
        assert_eq!(verdict.outcome, Outcome::Mismatch, "seed {seed}: {verdict:#?}");
        assert!(
            verdict.mismatched > verdict.allowed && verdict.first.is_some(),
            "seed {seed}: {verdict:#?}"
        );
    }

    // Nothing is kept of a dispatch that is only timed, so that nothing can be said of it.
    let dispatch = session.measure(Duration::ZERO);
    assert!(dispatch.passed(), "seed {seed}: {:#?}", dispatch.failure());
    assert!(!failed(&session.instance().validate()).is_empty());

    // With both mended, all is well.
    let dispatch = session.dispatch(Duration::ZERO);
    assert!(dispatch.passed(), "seed {seed}: {:#?}", dispatch.failure());
    let verdicts = session.instance().validate();
    assert!(failed(&verdicts).is_empty(), "seed {seed}: {:#?}", failed(&verdicts));
}
