//! Drawings of the page: made of numbers and our own words only, so that nothing in them needs escaping.

use std::fmt::Write as _;

use super::words;
use crate::compare::{RingPeak, RingResource};

/// Width of a drawing, px.
const WIDTH: f64 = 640.0;

/// Left and right margin of the strip, px.
const MARGIN: f64 = 12.0;

/// Most samples that are drawn per process run; evenly spread ones are kept.
const MOST_SAMPLES: usize = 200;

/// Latencies on a line: the reference's process runs above, the run's samples and process runs below.
///
/// Numbers are ns. `None` if there is nothing to draw.
pub(super) fn latency_strip(reference: &[f64], medians: &[f64], samples: &[Vec<f64>]) -> Option<String> {
    let usable = |value: &&f64| value.is_finite() && **value > 0.0;
    let all = reference
        .iter()
        .chain(medians)
        .chain(samples.iter().flatten())
        .filter(usable);
    let (low, high) = all.fold((f64::MAX, 0.0_f64), |(low, high), &v| (low.min(v), high.max(v)));
    if low > high {
        return None;
    }
    let span = (high - low).max(high * 1e-3);
    let x = |value: f64| MARGIN + (value - low) / span * (WIDTH - 2.0 * MARGIN);
    let mut svg = format!(
        "<svg class=\"strip\" viewBox=\"0 0 {WIDTH} 92\" role=\"img\" aria-label=\"latency distribution\">\
         <line x1=\"{MARGIN}\" y1=\"70\" x2=\"{}\" y2=\"70\" class=\"axis\"/>",
        WIDTH - MARGIN
    );
    let mut label = |at: f64, anchor: &str, y: u32, text: &str| {
        let _ = write!(
            svg,
            "<text x=\"{at:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    };
    label(MARGIN, "start", 86, &words::nanos(low));
    label(WIDTH - MARGIN, "end", 86, &words::nanos(high));
    label(
        MARGIN,
        "start",
        12,
        &format!("reference: {} process runs", reference.len()),
    );
    let count: usize = samples.iter().map(Vec::len).sum();
    label(
        MARGIN,
        "start",
        44,
        &format!("this run: {} process runs, {count} samples", medians.len()),
    );
    for &value in reference.iter().filter(usable) {
        let _ = write!(svg, "<circle cx=\"{:.1}\" cy=\"22\" r=\"4\" class=\"ref\"/>", x(value));
    }
    for run in samples {
        let step = run.len().div_ceil(MOST_SAMPLES).max(1);
        for value in run.iter().filter(usable).step_by(step) {
            let _ = write!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"60\" r=\"2\" class=\"sample\"/>",
                x(*value)
            );
        }
    }
    for &value in medians.iter().filter(usable) {
        let at = x(value);
        let _ = write!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"50\" x2=\"{at:.1}\" y2=\"70\" class=\"median\"/>"
        );
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// Rings that were used: high-water against capacity, with the mark beyond which half of the ring would not do.
pub(super) fn ring_bars(peaks: &[RingPeak; 4]) -> Option<String> {
    let mut bars = String::new();
    let mut y = 0;
    for (ring, peak) in peaks.iter().enumerate() {
        for resource in RingResource::ALL {
            let Some(fill) = words::fill(peak, resource) else {
                continue;
            };
            let (capacity, high_water) = resource.of(peak);
            let (capacity, high_water) = match resource {
                RingResource::Heap => (words::bytes(capacity), words::bytes(high_water)),
                RingResource::TaskWindow | RingResource::DepPool => (capacity.to_string(), high_water.to_string()),
            };
            let class = if fill > 0.5 { "tight" } else { "roomy" };
            let _ = write!(
                bars,
                "<rect x=\"0\" y=\"{y}\" width=\"200\" height=\"12\" class=\"capacity\"/>\
                 <rect x=\"0\" y=\"{y}\" width=\"{:.1}\" height=\"12\" class=\"{class}\"/>\
                 <line x1=\"100\" y1=\"{y}\" x2=\"100\" y2=\"{}\" class=\"half\"/>\
                 <text x=\"208\" y=\"{}\">ring {ring} {}: {high_water} of {capacity} ({:.1} %), headroom ×{:.2}</text>",
                (fill * 200.0).min(200.0),
                y + 12,
                y + 10,
                resource.token(),
                fill * 100.0,
                1.0 / fill
            );
            y += 18;
        }
    }
    (y > 0).then(|| {
        format!(
            "<svg class=\"rings\" viewBox=\"0 0 {WIDTH} {y}\" role=\"img\" aria-label=\"ring occupancy\">{bars}</svg>"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_draw_is_nothing() {
        assert_eq!(latency_strip(&[], &[], &[]), None);
        assert_eq!(latency_strip(&[f64::NAN, 0.0], &[], &[]), None);
        assert_eq!(ring_bars(&[RingPeak::default(); 4]), None);
    }

    #[test]
    fn one_number_is_drawn_without_a_span() {
        let svg = latency_strip(&[1e6], &[1e6], &[vec![1e6]]).unwrap();
        assert!(svg.contains("1.00 ms") && !svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn a_bar_tells_fill_and_headroom() {
        let mut peaks = [RingPeak::default(); 4];
        peaks[1].heap_capacity_bytes = 512 << 20;
        peaks[1].heap_high_water_bytes = 306_889_728;
        let svg = ring_bars(&peaks).unwrap();
        assert!(
            svg.contains("ring 1 heap: 292.67 MiB of 512 MiB (57.2 %), headroom ×1.75"),
            "{svg}"
        );
        assert!(svg.contains("tight"));
    }
}
